"""Changes between two verifications of a cluster. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from tpukit.cluster.verify.checks import Result

_NOTEWORTHY = 0.25
"""Relative change of a value that is reported although its verdict stayed."""


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
        elif _differs(old[key].value, new[key].value):
            lines.append(f"{name}: was {old[key].value:g} {old[key].unit}, is {new[key].value:g}".rstrip())
    return lines


def _differs(one: float | None, other: float | None) -> bool:
    if one is None or other is None:
        return False
    return abs(one - other) > _NOTEWORTHY * max(abs(one), abs(other)) and max(abs(one), abs(other)) > 1.0
