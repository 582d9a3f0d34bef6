"""Decisions about a queued job: a pure function from its record to the next record.

pending -> scheduled -> running -> completed | failed | cancelled. Only an infrastructure fault leads back to pending,
after a longer wait each time, and after too many of them to the dead letters. The writer of a decision about a running
job holds its lease, or has seen that no worker does.
"""

from __future__ import annotations

import dataclasses
import zlib
from dataclasses import dataclass
from enum import StrEnum

from msgspec.structs import replace

from tpukit.code_queue import slices
from tpukit.code_queue.records import (
    ACTIVE,
    CANCELLED,
    COMPLETED,
    ENDED,
    FAILED,
    OWN,
    PENDING,
    RUNNING,
    SCHEDULED,
    QueuedJob,
    is_number,
)
from tpukit.code_queue.storable import strange, tame
from tpukit.core.errors import Invalid
from tpukit.core.retry import growing, spread
from tpukit.jobs.reasons import MEANINGS, Budget, Reason, message
from tpukit.kernel.store import Entry

FIRST_WAIT, LONGEST_WAIT = 2.0, 300.0
LONGEST_TIMEOUT = 24 * 3600
CODE_LIMIT = 900_000
"""Bytes of code: a Firestore document holds a mebibyte, and the other fields need some of it."""


class Act(StrEnum):
    START = "start"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The outcome of an attempt."""

    reason: Reason
    result: str | None = None
    result_uri: str = ""
    error: str = ""
    logs: str = ""


@dataclass(frozen=True, slots=True)
class Seen:
    """Observations about a job besides its record."""

    leased: bool  # a live worker holds it
    started: bool | None = None  # the place has a worker for it; None: workers fetch their jobs themselves
    failure: Reason | None = None  # why the place gave up the job
    detail: str = ""
    missing: str = ""  # slice that the job needs and no worker offers


@dataclass(frozen=True, slots=True)
class Step:
    job: QueuedJob
    act: Act | None = None
    note: str = ""


def problems(job: QueuedJob) -> str:
    """Return why the job can never run; empty if it can."""
    if not isinstance(job.code, str) or not job.code.strip():
        return "code: missing; write a Python program as text"
    if len(job.code.encode("utf-8", "replace")) > CODE_LIMIT:
        return f"code: larger than {CODE_LIMIT:,} bytes; put large data into a bucket"
    if not is_number(job.timeout) or not 0 < job.timeout <= LONGEST_TIMEOUT:
        return f"timeout: {job.timeout!r} must be a number of seconds between 0 and {LONGEST_TIMEOUT}"
    if not is_number(job.priority):
        return f"priority: {job.priority!r} must be a number"
    if job.metadata is not None and not isinstance(job.metadata, dict):
        return f"metadata: {type(job.metadata).__name__} must be an object"
    for name in ("challenge_number", "metadata"):
        if held := strange(getattr(job, name)):
            return f"{name}: it holds {held}, which cannot be stored"
    try:
        slices.parse(asked) if (asked := slices.requested(job)) else None
    except Invalid as error:
        return str(error)
    return ""


def unfit(entry: Entry[QueuedJob], job: QueuedJob, why: str, now: float) -> tuple[Entry[QueuedJob], QueuedJob]:
    """Return a replacement for `job`, which the store refuses: failed, with an error message.

    Values that are too large or of a type that cannot be stored are removed. `entry`, the job as read, is treated
    alike.
    """
    now = _later(job, now)
    said = str(job.error) if job.status == FAILED and job.error else f"the document of the job cannot be stored: {why}"
    if job.status not in ENDED:
        job = _end(job, FAILED, Reason.CANNOT_START, said, now)
    own = {name: tame(getattr(job, name)) for name in ("challenge_number", "code", "timeout", "metadata", "priority")}
    raw = {name: value if name in OWN else tame(value) for name, value in entry.raw.items()}
    own |= {"error": tame(said), "logs": str(tame(job.logs)), "result": tame(job.result)}
    return dataclasses.replace(entry, raw=raw), replace(job, **own)


def claimable(job: QueuedJob, now: float, status: str = PENDING) -> bool:
    return job.status == status and _due(job, now) and not job.cancel


def claim(job: QueuedJob, worker: str, now: float) -> QueuedJob:
    """Mark the job as running, by a worker that holds its lease."""
    assert job.status in (PENDING, SCHEDULED)
    now = _later(job, now)
    return replace(
        job,
        status=RUNNING,
        scheduled_at=job.scheduled_at if job.status == SCHEDULED else now,
        started_at=now,
        updated_at=now,
        worker=worker,
        attempts=job.attempts + 1,
        reason="",
        error=None,
        peer_error="",
        ranked=True,
    )


def finish(key: str, job: QueuedJob, outcome: Outcome, now: float) -> QueuedJob:
    """Return the record after an attempt. A result counts even if cancellation was requested meanwhile."""
    now = _later(job, now)
    if outcome.reason is not Reason.DONE and job.cancel:
        return _end(job, CANCELLED, Reason.CANCELLED, message(Reason.CANCELLED), now, outcome.logs)
    if MEANINGS[outcome.reason].budget is Budget.HARDWARE:
        return _again(key, job, outcome, now)
    if outcome.reason is Reason.DONE:
        ended = _end(job, COMPLETED, Reason.DONE, None, now, outcome.logs)
        return replace(ended, result=outcome.result, result_uri=outcome.result_uri)
    state = CANCELLED if outcome.reason is Reason.CANCELLED else FAILED
    return _end(job, state, outcome.reason, outcome.error or message(outcome.reason), now, outcome.logs)


def give_back(job: QueuedJob, now: float) -> QueuedJob:
    """Return the job of a worker that is stopping: no fault is counted, and another worker may start at once."""
    now = _later(job, now)
    if job.cancel:
        return _end(job, CANCELLED, Reason.CANCELLED, message(Reason.CANCELLED), now)
    return replace(job, status=PENDING, updated_at=now, not_before=0.0, reason=str(Reason.PREEMPTED), worker="")


def cancel(job: QueuedJob, now: float) -> QueuedJob:
    """Cancel a job without a worker at once; otherwise request it from the worker."""
    now = _later(job, now)
    if job.status in ENDED:
        return job
    if job.status == PENDING:
        return _end(replace(job, cancel=True), CANCELLED, Reason.CANCELLED, message(Reason.CANCELLED), now)
    return replace(job, cancel=True, updated_at=now)


def retry(job: QueuedJob, now: float) -> QueuedJob:
    """Restart the job on a user's request, with fresh budgets."""
    now = _later(job, now)
    fields = {"status": PENDING, "updated_at": now, "faults": 0, "not_before": 0.0, "cancel": False}
    cleared = {"dead_letter": False, "error": None, "result": None, "result_uri": "", "reason": "", "logs": ""}
    times = {"scheduled_at": 0.0, "started_at": 0.0, "completed_at": 0.0}
    return replace(job, **fields, **cleared, **times)


def decide(key: str, job: QueuedJob, seen: Seen, now: float) -> Step:
    """Decide the next step of a job that has not ended, for the supervisor of the queue."""
    assert job.status in ACTIVE
    if seen.leased:  # its worker writes the outcome
        return Step(job)
    if job.status == PENDING:
        return _pending(job, seen, now)
    if job.status == RUNNING:
        lost = Outcome(Reason.HOST_LOST, error=f"{job.worker or 'its worker'} was lost", logs=job.logs)
        ended = finish(key, job, lost, now)
        return Step(ended, Act.STOP if seen.started else None, _note(ended))
    return _scheduled(key, job, seen, now)


def _pending(job: QueuedJob, seen: Seen, now: float) -> Step:
    later = _later(job, now)
    if job.cancel:
        return Step(cancel(job, now), note=message(Reason.CANCELLED))
    if wrong := problems(job):
        return Step(_end(job, FAILED, Reason.CANNOT_START, wrong, later), note=wrong)
    if seen.missing:
        text = (
            f"metadata.tpu: no worker of this queue is a {seen.missing}; run `tpu queue serve --tpu {seen.missing}` on "
            "one, or serve the queue from a cluster with --team"
        )
        return Step(_end(job, FAILED, Reason.CANNOT_START, text, later), note=text)
    if seen.started is not None and _due(job, now):
        again = {"schedules": job.schedules + 1, "ranked": True}
        scheduled = replace(job, status=SCHEDULED, scheduled_at=later, updated_at=later, **again)
        return Step(scheduled, Act.START, "scheduled")
    if not job.ranked or not job.created_at:
        created = job.created_at or later
        return Step(replace(job, created_at=created, updated_at=later, ranked=True), note="accepted")
    return Step(job)


def _scheduled(key: str, job: QueuedJob, seen: Seen, now: float) -> Step:
    later = _later(job, now)
    if seen.started is None:  # its starter no longer exists: workers fetch their jobs themselves now
        return Step(replace(job, status=PENDING, updated_at=later), note="waits for a worker")
    if job.cancel:
        if seen.started:
            return Step(job, Act.STOP)
        return Step(_end(job, CANCELLED, Reason.CANCELLED, message(Reason.CANCELLED), later), note="cancelled")
    if seen.failure:
        ended = finish(key, job, Outcome(seen.failure, error=seen.detail), now)
        return Step(ended, Act.STOP, _note(ended))
    return Step(job, None if seen.started else Act.START)


def _again(key: str, job: QueuedJob, outcome: Outcome, now: float) -> QueuedJob:
    faults = job.faults + 1
    said = outcome.error or message(outcome.reason)
    job = replace(job, faults=faults, updated_at=now, reason=str(outcome.reason), error=said, logs=outcome.logs)
    if faults >= max(1, job.max_faults):
        said = f"{said}; given up after {faults} {'attempt' if faults == 1 else 'attempts'} lost by the infrastructure"
        return replace(_end(job, FAILED, outcome.reason, said, now, outcome.logs), dead_letter=True)
    return replace(job, status=PENDING, not_before=now + wait(key, faults), worker="")


def wait(key: str, faults: int) -> float:
    """Return the seconds before the next try.

    The wait doubles each time; a random factor between a half and one spreads jobs that failed together.
    """
    random = zlib.crc32(f"{key}/{faults}".encode()) / 2**32
    return spread(growing(faults, FIRST_WAIT, LONGEST_WAIT), random)


def _end(
    job: QueuedJob, status: str, reason: Reason, error: str | None, now: float, logs: str | None = None
) -> QueuedJob:
    return replace(
        job,
        status=status,
        reason=str(reason),
        error=error,
        completed_at=now,
        updated_at=now,
        logs=job.logs if logs is None else logs,
        not_before=0.0,
        ranked=True,
    )


def _due(job: QueuedJob, now: float) -> bool:
    """Return whether the job may be tried. A time beyond the longest wait was written by a clock that was ahead."""
    return not now < job.not_before <= now + LONGEST_WAIT


def _later(job: QueuedJob, now: float) -> float:
    """Return a time that is not before earlier times of the job, regardless of differences between clocks."""
    return max(now, job.updated_at, job.created_at)


def _note(job: QueuedJob) -> str:
    return (
        f"{job.reason}: {job.error}"
        if job.status in ENDED
        else f"{job.error}; retried in {max(0.0, job.not_before - job.updated_at):.0f} s"
    )
