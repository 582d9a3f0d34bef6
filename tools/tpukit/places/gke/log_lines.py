"""Lines of a pod's log as the cluster gives them, each with the time at which it was printed. Pure.

Whoever reads a log in pieces knows where to go on by the time of the last line: hosts forget the beginning of a long
log, so how many lines were read says nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

PROGRESS = "tpukit-progress "
"""How a host's line begins that says how far it is (tpukit.host.progress)."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ")

Moment = tuple[str, str]
"""A second and the digits behind it, so that two can be compared as text."""


@dataclass(frozen=True, slots=True)
class Position:
    """Behind the `count`th line of a moment. Several lines may have been printed in one."""

    moment: Moment = ("", "")
    count: int = 0

    @property
    def since(self) -> str:
        """For the API server, which knows whole seconds only; empty: from the beginning."""
        return f"{self.moment[0]}Z" if self.moment[0] else ""


def moment(line: str) -> Moment | None:
    match = _STAMP.match(line)
    return (match[1], (match[2] or "").rstrip("0")) if match else None


def text(line: str) -> str:
    return _STAMP.sub("", line, count=1)


def for_people(lines: Iterable[str]) -> Iterator[str]:
    """Without their times, and without those that only say how far a host is."""
    for line in lines:
        plain = text(line)
        if not plain.startswith(PROGRESS):
            yield plain


def timed(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """The same, each with the time at which it was printed, in seconds since the epoch; 0: it has none."""
    for line in lines:
        if not (plain := text(line)).startswith(PROGRESS):
            at = moment(line)
            yield plain, _seconds(at) if at else 0.0


def _seconds(at: Moment) -> float:
    return datetime.fromisoformat(f"{at[0]}+00:00").timestamp() + float(f"0.{at[1] or 0}")


class NewLines:
    """Takes lines from some moment before `position` on, and lets those through that are behind it."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self._before = position
        self._same = 0

    def takes(self, line: str) -> bool:
        at = moment(line)
        if at is None or at < self._before.moment:  # without a time: the kubelet's own words about the log
            return False
        if at == self._before.moment:
            self._same += 1
            if self._same <= self._before.count:
                return False
        self.position = Position(at, self.position.count + 1 if at == self.position.moment else 1)
        return True
