"""Self-contained HTML reports: no script, no font, no external image."""

from __future__ import annotations

from html import escape

STYLE = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --good: #1a7f37; --bad: #cf222e;
  --paper: #ffffff; --unbroken: #afb8c1; --link: #0969da;
  --first: #0969da; --second: #bc4c00; --third: #8250df; --fourth: #1a7f37; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --good: #3fb950;
  --bad: #f85149; --paper: #0d1117; --unbroken: #59636e; --link: #58a6ff;
  --first: #58a6ff; --second: #f0883e; --third: #bc8cff; --fourth: #3fb950; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 56rem;
  margin: 0 auto; padding: 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin: 2rem 0 .25rem; }
p, ul { margin: .25rem 0; } .soft { color: var(--soft); } .good { color: var(--good); } .bad { color: var(--bad); }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: left; padding: .25rem .5rem .25rem 0; border-bottom: 1px solid var(--line); vertical-align: top; }
th, td:first-child { overflow-wrap: normal; } td.number, th.number { text-align: right; }
a { color: var(--link); } ul { padding-left: 1.25rem; } table { margin: 1rem 0; }
svg { width: 100%; max-width: 44rem; height: auto; display: block; margin: .5rem 0; overflow: visible; }
@media (max-width: 34rem) { .wide { display: none; } body { font-size: 15px; padding: .75rem; }
  svg text { font-size: 17px; } }
"""


def page(title: str, body: list[str]) -> str:
    """Return the page of a report. Empty parts of `body` are left out."""
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head>\n<body>\n"
        + "\n".join(filter(None, body))
        + "\n</body></html>\n"
    )
