"""Writes the tables of README.md, here and of every module, from the .tf files: `python terraform/readme.py`.

--check only compares, and exits 1 when a page is out of date. What people wrote around the tables stays as it is.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parent

_BLOCK = re.compile(r'^(variable|output) "(\w+)" \{\n(.*?)^\}', re.MULTILINE | re.DOTALL)
_RESOURCE = re.compile(r'^resource "(\w+)"', re.MULTILINE)


def pages() -> Iterator[tuple[Path, str]]:
    """Every page with the text it should have."""
    yield ROOT / "README.md", render(ROOT)
    for folder in _folders("modules"):
        yield folder / "README.md", render(folder)


def render(folder: Path) -> str:
    """Return the folder's README with each generated part, between its markers, brought up to date."""
    page = folder / "README.md"
    text = page.read_text()
    for name, table in _tables(folder).items():
        begin, end = f"<!-- begin {name} -->\n", f"<!-- end {name} -->"
        if begin not in text or end not in text:
            raise SystemExit(f"{page}: the lines {begin.strip()} and {end} are missing")
        head, tail = text.split(begin, 1)[0], text.split(end, 1)[1]
        text = f"{head}{begin}{table}{end}{tail}"
    return text


def _tables(folder: Path) -> dict[str, str]:
    """Return the generated parts, by the names of their markers."""
    own = {"inputs": _inputs(folder), "outputs": _outputs(folder)}
    if folder != ROOT:
        return own | {"resources": _made(folder) + "\n"}
    return own | {"apis": _apis(), "modules": _modules(), "examples": _examples()}


def _folders(name: str) -> list[Path]:
    return sorted(folder for folder in (ROOT / name).iterdir() if (folder / "main.tf").is_file())


def _apis() -> str:
    """Return the line that enables the APIs that `tpu cluster bootstrap` enables."""
    text = (ROOT.parent / "tools" / "tpukit" / "cluster" / "bootstrap.py").read_text()
    listed = re.search(r"^APIS = \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    if not listed:
        raise SystemExit("bootstrap.py has no APIS")
    names = re.findall(r'^    "(\w+)"', listed[1], re.MULTILINE)
    lines = ["gcloud services enable", *(f"  {name}.googleapis.com" for name in names)]
    return "```console\n" + " \\\n".join(lines) + "\n```\n"


def _inputs(folder: Path) -> str:
    rows = ["| Variable | What it is | Default |", "|---|---|---|"]
    for kind, name, body in _BLOCK.findall((folder / "variables.tf").read_text()):
        if kind == "variable":
            rows.append(f"| `{name}` | {_description(body)} | {_default(body)} |")
    return "\n".join(rows) + "\n"


def _outputs(folder: Path) -> str:
    rows = ["| Output | What it is |", "|---|---|"]
    for _, name, body in _BLOCK.findall((folder / "outputs.tf").read_text()):
        rows.append(f"| `{name}` | {_description(body)} |")
    return "\n".join(rows) + "\n"


def _modules() -> str:
    rows = ["| Module | Creates |", "|---|---|"]
    rows += [f"| [{folder.name}](modules/{folder.name}) | {_made(folder)} |" for folder in _folders("modules")]
    return "\n".join(rows) + "\n"


def _examples() -> str:
    rows = ["| Example | What it shows |", "|---|---|"]
    for folder in _folders("examples"):
        first = (folder / "README.md").read_text().split("\n\n")[1]
        rows.append(f"| [{folder.name}](examples/{folder.name}) | {' '.join(first.split())} |")
    return "\n".join(rows) + "\n"


def _made(folder: Path) -> str:
    kinds = [kind for file in sorted(folder.glob("*.tf")) for kind in _RESOURCE.findall(file.read_text())]
    return ", ".join(f"`{kind}`" for kind in dict.fromkeys(kinds)) or "nothing: it computes"


def _description(body: str) -> str:
    found = re.search(r'^  description = "(.*)"$', body, re.MULTILINE)
    if not found:
        raise SystemExit(f"this block has no description:\n{body}")
    return found[1].replace('\\"', '"').replace("|", "\\|")


def _default(body: str) -> str:
    found = re.search(r"^  default\s+= (.*)$", body, re.MULTILINE)
    if not found:
        return "**required**"
    return "" if found[1] == "null" else f"`{found[1]}`"


def main() -> int:
    check, stale = "--check" in sys.argv[1:], False
    for page, wanted in pages():
        if page.read_text() == wanted:
            continue
        if check:
            print(f"{page} is out of date: run `python {Path(__file__).name}` in {ROOT}", file=sys.stderr)
            stale = True
        else:
            page.write_text(wanted)
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
