"""Causes of spent time, and the spans of one attempt. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tpukit.jobs.reasons import Reason
from tpukit.jobs.records import Attempt

WEEK_MS = 7 * 86_400_000
LONGEST_MS = 3 * 365 * 86_400_000
"""Longest possible attempt: a longer time has a start that was not recorded."""
_LATEST = 1e11
_FIRST_MONDAY_MS = 4 * 86_400_000
"""Offset of the first Monday: the epoch is a Thursday."""


class Cause(StrEnum):
    WAITING = "waiting"  # in a queue, for capacity, or between two attempts
    MAKING = "making slices"
    STARTING = "starting"  # slices exist, but some hosts do not run yet, or the program has not announced steps
    COMPILING = "compiling"  # from then to the first step: loading, restoring, compiling
    NEW = "new steps"
    REPEATED = "repeated steps"  # an earlier attempt had done them
    SAVING = "saving"  # training waits for a save
    HUNG = "hung"  # from the last step to the request to leave
    STOPPED = "stopped"  # from the request to leave to the end
    UNSEEN = "no steps seen"  # it ran, but its steps cannot be read


USEFUL = (Cause.NEW, Cause.UNSEEN)
"""Causes of useful time, as far as is known."""
UNBILLED = (Cause.WAITING, Cause.MAKING)
"""Causes during which no slice is billed to the job."""


@dataclass(frozen=True, slots=True)
class Span:
    """One cause from `start` to `end`, in milliseconds since the epoch."""

    cause: Cause
    start: int
    end: int
    attempt: int  # -1: before the first

    @property
    def length(self) -> int:
        return self.end - self.start


def ms(seconds: float) -> int:
    """Return whole milliseconds. Records of other versions may hold any number: an invalid time becomes the epoch."""
    return round(seconds * 1000) if 0 <= seconds < _LATEST else 0


def window(start: float, end: float) -> tuple[int, int]:
    """Return start and end times in milliseconds. The window is empty if they cannot be true."""
    begins, ends = ms(start), ms(end)
    return (begins, ends) if 0 < ends - begins <= LONGEST_MS else (begins, begins)


def week_of(at: int) -> int:
    """Return the number of the week, which begins on Monday at 00:00 UTC."""
    return (at - _FIRST_MONDAY_MS) // WEEK_MS


def week_start(week: int) -> int:
    return week * WEEK_MS + _FIRST_MONDAY_MS


def begin_of(attempt: Attempt, before: float = 0.0) -> float:
    """Return the start time of an attempt. `before` is the end of the previous one, for records of older versions."""
    return attempt.marks.since or before or attempt.started or attempt.ended


def of_attempt(attempt: Attempt, until: float, before: float = 0.0) -> list[Span]:
    """Return the spans of an attempt, without gaps. `until` is the end of an attempt that has not ended."""
    start, end = window(begin_of(attempt, before) or until, attempt.ended or until)
    points = [(start, Cause.WAITING), *((ms(at), cause) for at, cause in _changes(attempt) if at > 0)]
    spans = []
    for index, (at, cause) in enumerate(points):
        following = [at for at, _ in points[index + 1 :]]
        begins = _within(max([at, *(one for one, _ in points[:index])]), start, end)
        ends = _within(max(begins, following[0]), start, end) if following else end
        if ends > begins:
            spans.append(Span(cause, begins, ends, attempt.number))
    return _with_saving(spans, ms(max(0.0, attempt.marks.saving)))


def by_week(spans: Sequence[Span]) -> dict[int, dict[Cause, int]]:
    weeks: dict[int, dict[Cause, int]] = {}
    for span in spans:
        at = span.start
        while at < span.end:
            week = week_of(at)
            until = min(span.end, week_start(week + 1))
            spent = weeks.setdefault(week, {})
            spent[span.cause] = spent.get(span.cause, 0) + until - at
            at = until
    return weeks


def _changes(attempt: Attempt) -> list[tuple[float, Cause]]:
    """Return when each cause starts, in the order in which causes follow each other."""
    marks = attempt.marks
    changes = [(marks.making, Cause.MAKING), (marks.placed, Cause.STARTING)]
    if attempt.started:
        ready = max(marks.announced, attempt.started) if marks.announced else attempt.started
        seen = marks.announced > 0 or marks.stepped > 0
        changes += [(attempt.started, Cause.STARTING), (ready, Cause.COMPILING if seen else Cause.UNSEEN)]
    repeats = marks.base >= marks.first
    changes += [(marks.stepped, Cause.REPEATED if repeats else Cause.NEW), (marks.advanced, Cause.NEW)]
    if Reason.HANG in (attempt.stopping, attempt.reason):
        changes.append((marks.moved or marks.stepped or marks.announced or attempt.started, Cause.HUNG))
    return [*changes, (marks.told, Cause.STOPPED)]


def _with_saving(spans: Sequence[Span], saving: int) -> list[Span]:
    """Count the measured time of saves as saving, taken from new steps first.

    Its position within a span is not recorded, so it goes to the end of the span.
    """
    left, changed = saving, list(spans)
    for cause in (Cause.NEW, Cause.REPEATED):
        divided = []
        for span in changed:
            taken = min(left, span.length) if span.cause is cause else 0
            left -= taken
            parts = [(span.cause, span.start, span.end - taken), (Cause.SAVING, span.end - taken, span.end)]
            divided += [Span(what, start, end, span.attempt) for what, start, end in parts if end > start]
        changed = divided
    return changed


def _within(at: int, start: int, end: int) -> int:
    return min(max(at, start), end)
