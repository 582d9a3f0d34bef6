"""A table of measurements."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from measure import Pairs, Took, milliseconds

NO_BAR = "–"


@dataclass(frozen=True, slots=True)
class Row:
    what: str
    ours: str
    theirs: str
    result: str
    bar: str
    met: bool

    def beside(self, theirs: str) -> Row:
        """Return the row with the values of the peer."""
        return replace(self, theirs=theirs)


def table(rows: Sequence[Row]) -> str:
    heading = Row("what", "tpukit", "peer", "result (95 % interval)", "bar", True)
    cells = [
        (row.what, row.ours, row.theirs, row.result, row.bar, "" if row is heading else _verdict(row))
        for row in (heading, *rows)
    ]
    widths = [max(len(line[number]) for line in cells) for number in range(len(cells[0]))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in cells
    )


def _verdict(row: Row) -> str:
    return "" if row.bar == NO_BAR else "met" if row.met else "MISSED"


def faster(what: str, pairs: Pairs, *, at_least: float) -> Row:
    ratio = pairs.times_faster()
    result = f"{ratio.value:.1f}× faster ({ratio.low:.1f}–{ratio.high:.1f})"
    bar, met = f"≥ {at_least:g}×", ratio.at_least(at_least)
    return Row(what, milliseconds(pairs.ours), milliseconds(pairs.theirs), result, bar, met)


def as_long(what: str, pairs: Pairs, *, at_most: float) -> Row:
    ratio = pairs.times_as_long()
    result = f"{ratio.value:.2f}× the time ({ratio.low:.2f}–{ratio.high:.2f})"
    bar, met = f"≤ {at_most:g}×", ratio.at_most(at_most)
    return Row(what, milliseconds(pairs.ours), milliseconds(pairs.theirs), result, bar, met)


def longer_by(what: str, pairs: Pairs, *, below: float) -> Row:
    more = pairs.longer_by()
    result = f"{more.value * 1e3:+.0f} ms ({more.low * 1e3:+.0f} to {more.high * 1e3:+.0f})"
    bar, met = f"< {below:g} s", more.at_most(below)
    return Row(what, milliseconds(pairs.ours), milliseconds(pairs.theirs), result, bar, met)


def least(what: str, times: Sequence[float], *, below: float) -> Row:
    """Return a row with the least of several runs, which is the least disturbed one. Used where there is no peer."""
    seconds = min(times)
    return Row(what, milliseconds(times), "–", f"{seconds:.2f} s", f"< {below:g} s", seconds < below)


def least_cpu(what: str, took: Sequence[Took], *, below: float) -> Row:
    """Return a row of CPU seconds for work that only computes and reads files.

    Other load on the machine does not change CPU seconds.
    """
    seconds = min(one.cpu for one in took)
    shown = milliseconds([one.wall for one in took])
    return Row(what, shown, "–", f"{seconds:.2f} s of CPU", f"< {below:g} s", seconds < below)


def below(what: str, value: float, unit: str, bar: float, *, digits: int = 1) -> Row:
    """Return a row for a count that must be below a limit."""
    shown = f"{value:.{digits}f}{unit}"
    return Row(what, shown, "–", shown, f"< {bar:g}{unit}", value < bar)


def at_most(what: str, value: float, unit: str, bar: float, *, digits: int = 1) -> Row:
    """Return a row for a count that must not exceed a limit."""
    shown = f"{value:.{digits}f}{unit}"
    return Row(what, shown, "–", shown, f"≤ {bar:g}{unit}", round(value, digits) <= bar)


def at_least(what: str, value: int, of: int, bar: int) -> Row:
    """Return a row that counts the right ones of several results."""
    shown = f"{value} of {of}"
    return Row(what, shown, "–", shown, f"≥ {bar}", value >= bar)


def counted(what: str, value: float, unit: str, *, digits: int = 1) -> Row:
    """Return a row for a count without a limit."""
    shown = f"{value:.{digits}f}{unit}"
    return Row(what, shown, "–", shown, NO_BAR, True)
