"""Note when an attempt passes from one cause of spent time to the next. Pure.

A mark is written once, so each attempt costs only a few extra writes of its record, whatever its number of steps.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from tpukit.goodput.causes import Cause
from tpukit.jobs import history
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Attempt, Job, Marks
from tpukit.places.base import HostView, Observation


def launched(job: Job, attempt: Attempt, now: float) -> Attempt:
    """Return a new attempt with its initial marks. An attempt that a person requested counts from the request."""
    past = history.fold(job.folded, job.attempts)
    before = job.attempt.ended if job.attempt else job.created
    since = now if attempt.asked else before
    base = past.furthest if past.count and past.origin == attempt.origin else -1
    return replace(attempt, marks=Marks(since=since or now, base=base))


def noted(attempt: Attempt, seen: Observation, now: float) -> Attempt:
    """Return the attempt with the marks that an observation adds; the same attempt where it adds none."""
    marks = attempt.marks
    if seen.state is State.SCHEDULED and seen.waits_as is Cause.MAKING:
        marks = _once(marks, "making", now)
    starts = seen.state is State.SCHEDULED and seen.waits_as is Cause.STARTING
    if starts or seen.state is State.RUNNING or (seen.state is State.PENDING and _begun(seen.hosts)):
        marks = _once(marks, "placed", min(now, seen.started or now))
    if seen.state in (State.PENDING, State.SCHEDULED):
        return attempt if marks == attempt.marks else replace(attempt, marks=marks)
    if any(host.early and host.step is None for host in seen.hosts):
        marks = _once(marks, "announced", _first_moved(seen.hosts, now))
    if furthest := _furthest(seen.hosts):
        step, moved = furthest.step or 0, _moved(furthest, now)
        if not marks.stepped:
            marks = replace(marks, stepped=moved, first=step)
        if step > marks.base:
            marks = _once(marks, "advanced", moved)
        if seen.save_held is not None:
            marks = replace(
                marks,
                saves=marks.saves + 1,
                saving=marks.saving + seen.save_held,
                squares=marks.squares + seen.save_held**2,
            )
    if seen.state.ended and (moved := max((_moved(one, now) for one in seen.hosts if one.moved), default=0.0)):
        marks = _once(marks, "moved", moved)
    return attempt if marks == attempt.marks else replace(attempt, marks=marks)


def told(attempt: Attempt, hosts: Sequence[HostView], now: float) -> Attempt:
    """Return the attempt with the times of its stop request and of its last step change."""
    moved = max((_moved(one, now) for one in hosts if one.moved), default=0.0)
    return replace(attempt, marks=replace(attempt.marks, told=now, moved=moved))


def _once(marks: Marks, name: str, at: float) -> Marks:
    return marks if getattr(marks, name) else replace(marks, **{name: at})


def _begun(hosts: Sequence[HostView]) -> bool:
    return any(host.state != "waiting" for host in hosts)


def _furthest(hosts: Sequence[HostView]) -> HostView | None:
    return max((one for one in hosts if one.step is not None), key=lambda one: one.step or 0, default=None)


def _moved(host: HostView, now: float) -> float:
    """Return when the host's step changed, by its own report. Clocks of hosts may be ahead."""
    return min(host.moved or now, now)


def _first_moved(hosts: Sequence[HostView], now: float) -> float:
    return min(_moved(one, now) for one in hosts if one.early)
