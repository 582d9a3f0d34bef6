"""Lines of a pod's log as the cluster returns them, each with the time at which it was printed. Pure.

A reader that reads a log in pieces continues by the time of the last line: hosts drop the beginning of a long log, so
the number of lines read does not help.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime

PROGRESS = "tpukit-progress "
"""Prefix of a host's progress lines (tpukit.host.progress)."""
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ")

Moment = tuple[str, str]
"""A second and its fraction digits, comparable as text."""


@dataclass(frozen=True, slots=True)
class Position:
    """The position behind the `count`th line of a moment, in which several lines may have been printed."""

    moment: Moment = ("", "")
    count: int = 0

    @property
    def since(self) -> str:
        """The start time for the API server, in whole seconds; empty: from the beginning."""
        return f"{self.moment[0]}Z" if self.moment[0] else ""


def moment(line: str) -> Moment | None:
    match = _STAMP.match(line)
    return (match[1], (match[2] or "").rstrip("0")) if match else None


def text(line: str) -> str:
    return _STAMP.sub("", line, count=1)


def for_people(lines: Iterable[str]) -> Iterator[str]:
    """Yield lines without their times, except progress lines."""
    for line in lines:
        plain = text(line)
        if not plain.startswith(PROGRESS):
            yield plain


def timed(lines: Iterable[str]) -> Iterator[tuple[str, float]]:
    """Yield the same lines, each with its time in seconds since the epoch; 0: it has none."""
    for line in lines:
        if not (plain := text(line)).startswith(PROGRESS):
            at = moment(line)
            yield plain, _seconds(at) if at else 0.0


def _seconds(at: Moment) -> float:
    return datetime.fromisoformat(f"{at[0]}+00:00").timestamp() + float(f"0.{at[1] or 0}")


class NewLines:
    """A filter for lines read from some moment before `position` on, which takes those behind it."""

    def __init__(self, position: Position) -> None:
        self.position = position
        self._before = position
        self._same = 0

    def takes(self, line: str) -> bool:
        at = moment(line)
        if at is None or at < self._before.moment:  # no time: a message of the kubelet about the log
            return False
        if at == self._before.moment:
            self._same += 1
            if self._same <= self._before.count:
                return False
        self.position = Position(at, self.position.count + 1 if at == self.position.moment else 1)
        return True
