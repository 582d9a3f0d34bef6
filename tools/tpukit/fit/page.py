"""The comparison of a job on several shapes as one HTML file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from html import escape

from tpukit import __version__
from tpukit.core import html
from tpukit.fit import chart
from tpukit.fit.shapes import Shape
from tpukit.fit.whole_run import Length, Row, batches_differ

ESTIMATES = "Hours and dollars are estimates by roofline and list price: each resource alone at full speed."
BATCHES = "The batch differs between shapes, so equal steps do not compare: give the length with --tokens."


def render(job: str, rows: Sequence[Row], excluded: Mapping[Shape, Shape], length: Length) -> str:
    """Render the page."""
    fitting = [one for one in rows if one.report.can_run]
    versions = next((one.report.versions for one in rows if one.report.versions), {})
    compiled = ", ".join(f"{name} {version}" for name, version in versions.items())
    body = [
        f"<h1>{escape(job)}: hours against dollars</h1>",
        f'<p class="soft">{len(fitting)} of {len(rows)} compiled shapes fit; the run has {escape(str(length))}. '
        f"{ESTIMATES} Nothing has run on a TPU.</p>",
        f'<p class="bad">{BATCHES}</p>' if length.tokens is None and batches_differ(rows) else "",
        chart.hours_against_dollars(rows),
        '<p class="soft">Both axes are logarithmic. A filled point: no other shape is both faster and cheaper.</p>'
        if fitting
        else "",
        _table(fitting) if fitting else "",
        _stopped([one for one in rows if not one.report.can_run]),
        _excluded(excluded),
        f'<p class="soft">tpukit {escape(__version__)}; compiled by {escape(compiled)}</p>' if compiled else "",
    ]
    return html.page(f"tpu fit {job}", body)


def _table(rows: Sequence[Row]) -> str:
    names = ("chips", "memory", "step", "bound", "MFU", "hours", "USD")
    heads = "<th>slices</th>" + "".join(f'<th class="number">{name}</th>' for name in names)
    lines = []
    for one in rows:
        guess, held = one.report.estimate, one.report.memory
        cells = (
            str(one.shape.chips),
            f"{held.peak / held.available:.0%}" if held else "",
            f"{guess.roofline_seconds:.3g} s" if guess else "",
            guess.bound if guess else "",
            f"{guess.mfu:.1%}" if guess else "",
            f"{one.hours:,.2f}" if one.hours is not None else "",
            f"{one.usd:,.2f}" if one.usd is not None else one.report.price,
        )
        name = f"<strong>{escape(str(one.shape))}</strong>" if one.best else escape(str(one.shape))
        lines.append(f"<tr><td>{name}</td>" + "".join(f'<td class="number">{escape(cell)}</td>' for cell in cells))
    return f"<table><thead><tr>{heads}</tr></thead><tbody>{'</tr>'.join(lines)}</tr></tbody></table>"


def _stopped(rows: Sequence[Row]) -> str:
    lines = []
    for one in rows:
        why = next((found.text for found in one.report.findings if found.stops), one.report.verdict)
        lines.append(f"<li>{escape(str(one.shape))}: {escape(one.report.verdict)}: {escape(why)}</li>")
    return f"<h2>Do not fit</h2><ul>{''.join(lines)}</ul>" if lines else ""


def _excluded(excluded: Mapping[Shape, Shape]) -> str:
    lines = [
        f"<li>{escape(str(one))}: smaller than {escape(str(why))}, which does not fit</li>"
        for one, why in excluded.items()
    ]
    return f"<h2>Not compiled</h2><ul>{''.join(lines)}</ul>" if lines else ""
