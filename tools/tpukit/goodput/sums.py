"""Sums of spent time over the attempts of a job, and over jobs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from msgspec import structs

from tpukit.goodput import causes, measures
from tpukit.goodput.causes import Cause, Span, begin_of, ms, of_attempt, week_start, window
from tpukit.goodput.measures import Measured
from tpukit.jobs.records import Folded, Job

Spent = Mapping[Cause, int]
"""Milliseconds by cause."""


@dataclass(frozen=True, slots=True)
class Goodput:
    """Time spent by one job or many, by cause."""

    spent: Spent = field(default_factory=dict)
    measured: Measured = field(default_factory=Measured)

    @property
    def wall(self) -> int:
        return sum(self.spent.values())


def spans(job: Job, now: float) -> list[Span]:
    """Return the spans of all attempts in the record, with the time before, between and after them."""
    found: list[Span] = []
    before = job.created if not job.folded else 0.0
    for attempt in job.attempts:
        found += of_attempt(attempt, now, before)
        before = attempt.ended
    last = job.attempt
    if last is None:
        return _span(Cause.WAITING, job.created, job.ended or now, -1)
    if last.ended:
        closing = job.ended > 0 or job.outcome is not None
        found += _span(Cause.STOPPED if closing else Cause.WAITING, last.ended, job.ended or now, last.number)
    return found


def of_job(job: Job, now: float, since: float = 0.0) -> Goodput:
    """Return how the time of a job after `since` was spent.

    Folded attempts are counted by the week, for weeks that begin at `since` or later.
    """
    spent = _folded(job.folded, since)
    for span in spans(job, now):
        length = span.end - max(span.start, ms(since))
        if length > 0:
            spent[span.cause] = spent.get(span.cause, 0) + length
    measured = measures.of(one for one in job.attempts if not one.ended or one.ended >= since)
    if job.folded and since <= 0:
        measured = measured.plus(Measured.from_record(job.folded.measured))
    return Goodput(spent, measured)


def by_week(job: Job, now: float, since: float = 0.0) -> dict[int, Goodput]:
    """Return how the time of a job after `since` was spent, by week. The weeks add up to `of_job`."""
    weeks: dict[int, dict[Cause, int]] = {}
    for name in job.folded.spent if job.folded else ():
        if spent := _folded(job.folded, since, only=name):
            weeks[int(name)] = spent
    clipped = [replace(span, start=max(span.start, ms(since))) for span in spans(job, now)]
    for week, spent in causes.by_week([span for span in clipped if span.length > 0]).items():
        into = weeks.setdefault(week, {})
        for cause, amount in spent.items():
            into[cause] = into.get(cause, 0) + amount
    return {week: Goodput(weeks[week]) for week in sorted(weeks)}


def wall(job: Job, now: float) -> int:
    """Return the wall time of a job in milliseconds, from its times alone."""
    total = sum(sum(week.values()) for week in job.folded.spent.values()) if job.folded else 0
    before = job.created if not job.folded else 0.0
    for attempt in job.attempts:
        begins, ends = window(begin_of(attempt, before) or now, attempt.ended or now)
        total += ends - begins
        before = attempt.ended
    begins, ends = window(before, job.ended or now)
    return total + (ends - begins if before or not job.attempts else 0)


def total(some: Iterable[Goodput]) -> Goodput:
    spent: dict[Cause, int] = {}
    measured = Measured()
    for one in some:
        for cause, amount in one.spent.items():
            spent[cause] = spent.get(cause, 0) + amount
        measured = measured.plus(one.measured)
    return Goodput(spent, measured)


def folded(before: Folded, spans_of: Iterable[Span], measured: Measured) -> Folded:
    """Return `before` with the time of an attempt that the record no longer holds."""
    weeks = {week: dict(spent) for week, spent in before.spent.items()}
    for week, spent in causes.by_week(list(spans_of)).items():
        into = weeks.setdefault(str(week), {})
        for cause, amount in spent.items():
            into[str(cause)] = into.get(str(cause), 0) + amount
    measured = Measured.from_record(before.measured).plus(measured)
    return structs.replace(before, spent=weeks, measured=measured.to_record())


def _folded(before: Folded | None, since: float, only: str = "") -> dict[Cause, int]:
    spent: dict[Cause, int] = {}
    for week, amounts in before.spent.items() if before else ():
        if week_start(int(week)) < ms(since) or only not in ("", week):
            continue
        for name, amount in amounts.items():
            cause = Cause(name) if name in set(Cause) else Cause.UNSEEN  # a newer version may know more causes
            spent[cause] = spent.get(cause, 0) + amount
    return spent


def _span(cause: Cause, start: float, end: float, attempt: int) -> list[Span]:
    begins, ends = window(start, end)
    return [Span(cause, begins, ends, attempt)] if ends > begins else []
