"""What was measured, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    ours: str
    theirs: str
    result: str
    bar: str
    met: bool


def table(rows: Sequence[Row]) -> str:
    heading = Row("what", "tpukit", "peer", "result", "bar", True)
    cells = [
        (row.what, row.ours, row.theirs, row.result, row.bar, "" if row is heading else "met" if row.met else "MISSED")
        for row in (heading, *rows)
    ]
    widths = [max(len(line[column]) for line in cells) for column in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def least(what: str, times: Sequence[float], shown: str, *, below: float) -> Row:
    """Where there is nobody to compare with, the least of several runs counts: the one that was disturbed the least."""
    seconds = min(times)
    return Row(what, shown, "–", f"{seconds:.1f} s", f"< {below:g} s", seconds < below)
