"""Changes between two verifications of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tpukit.cluster.verify.checks import Result

_NOTEWORTHY = 0.25
"""Relative change of a value that is reported although its verdict stayed."""
_OF_LIMIT = 0.05
"""Share of the limit below which a change is ignored: seconds differ from run to run."""


def changes(before: Iterable[Result], now: Iterable[Result]) -> list[str]:
    """Return a line for each check whose verdict or value changed, appeared or is gone."""
    old, new = ({(one.target, one.check): one for one in results} for results in (before, now))
    lines = []
    for key in dict.fromkeys((*old, *new)):
        name = " ".join(key)
        if key not in new:
            lines.append(f"{name}: no longer checked")
        elif key not in old:
            lines.append(f"{name}: new, {new[key].state}")
        elif old[key].state != new[key].state:
            lines.append(f"{name}: was {old[key].state}, is {new[key].state}")
        elif _differs(old[key], new[key]):
            lines.append(f"{name}: was {old[key].value:g} {old[key].unit}, is {new[key].value:g}".rstrip())
    return lines


def _differs(old: Result, new: Result) -> bool:
    if old.value is None or new.value is None:
        return False
    difference = abs(old.value - new.value)
    far_from_limit = new.limit is not None and difference < _OF_LIMIT * new.limit
    return difference > _NOTEWORTHY * max(abs(old.value), abs(new.value)) and not far_from_limit
