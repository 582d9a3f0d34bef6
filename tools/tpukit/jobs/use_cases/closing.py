"""Close a job whose cluster or machine no longer exists, without an answer from its place."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

from tpukit.core.errors import Conflict, TpukitError
from tpukit.jobs.records import JOBS, Job

if TYPE_CHECKING:
    from tpukit.jobs.use_cases.session import Session

NOTHING_RUNS = "No process of the job runs."


def forget(session: Session, record: Job) -> Job:
    """End the record of an active job as cancelled, and name what may be left behind. Nothing is stopped.

    Raises:
        Conflict: Something of the job runs or is held, another process drives it, or the record changed meanwhile.
    """
    from tpukit.kernel.store import change

    with lease_taken(session, record.id):
        left = left_behind(session, record)
        text = f"closed by {session.owner} without an answer from its place. {left}"
        now = session.clock.now()

        def close(job: Job) -> Job:
            if (job.attempts, job.wanted) != (record.attempts, record.wanted):
                raise Conflict(f"{job.id} changed meanwhile", hint="run the command again")
            return _closed(job, text, now)

        return change(session.store, JOBS, record.id, close, note=text, at=now).value


def close_undriven(session: Session, job: Job) -> Job | None:
    """Close and return a job that no process drives and of which nothing runs, or return None if it may still run."""
    from tpukit.kernel.store import change

    if session.lease(job.id) is not None or not job.attempts:
        return None
    with lease_taken(session, job.id):
        try:
            left = left_behind(session, job)
        except Conflict:
            return None
        if left != NOTHING_RUNS:
            return None
        now = session.clock.now()
        text = f"closed, because no process drove the job. {left}"
        return change(session.store, JOBS, job.id, partial(_closed, text=text, now=now), note=text, at=now).value


@contextmanager
def lease_taken(session: Session, job_id: str) -> Iterator[None]:
    """Hold the lease of a job that is to be closed, unless a driver holds it.

    A driver that is suspended before it starts an attempt then finds its lease lost when it resumes.
    """
    from tpukit.kernel.leases import SECONDS

    lease = session.store.acquire(f"{JOBS.name}/{job_id}", session.holder, SECONDS)
    try:
        yield
    finally:
        if lease is not None:
            session.store.release(lease)


def left_behind(session: Session, record: Job) -> str:
    """Return a sentence about what may be left of a job.

    Raises:
        Conflict: Its place reports that something runs or is held, or another process drives it and may start an
            attempt, or its place cannot be seen from here.
    """
    from tpukit.jobs.plan import Plan
    from tpukit.places.base import Handle

    place = session.places.get(record.place)
    if not record.attempts:
        return "The job never started."
    if place is None:
        return f"It is unknown what the job left in {record.place}."
    try:
        handle = Handle.of(record)
        seen = place.observe([handle])[0] if place.group(Plan.from_json(record.plan)) is not None else None
    except TpukitError:  # an unreachable place or an unreadable plan is why the job is closed
        seen = None
    if seen is not None and not isinstance(seen, TpukitError):
        if seen.active:
            raise Conflict(f"{record.place} answers, and {record.id} runs", hint=f"`tpu job stop {record.id}` stops it")
        if seen.held:
            raise Conflict(
                f"{record.place} holds hardware for {record.id}", hint=f"`tpu job stop {record.id}` releases it"
            )
        if not record.attempts[-1].state.ended and (driver := session.driven_by_another(record.id)):
            hint = f"`tpu job stop {record.id}` asks it to stop the job; or end that process first"
            raise Conflict(f"{record.id} is driven by {driver}, which may start the job at any moment", hint=hint)
        return NOTHING_RUNS
    driver = session.driven_by_another(record.id)
    if driver and not record.message:  # a driver that cannot see the job either writes the reason to the record
        hint = f"`tpu job stop {record.id}` asks it to stop the job; or end that process first"
        raise Conflict(f"{record.id} is driven by {driver}, and {record.place} cannot be seen from here", hint=hint)
    try:
        return f"Left behind, as far as is known: {place.forget(Handle.of(record))}."
    except Conflict as error:
        words = f"hosts of {record.id} cannot be seen from here, but {error.message}"
        raise Conflict(
            words, hint=f"`tpu job stop {record.id}` releases its hardware without an answer of its hosts"
        ) from error
    except TpukitError:
        return f"It is unknown what the job left in {record.place}."


def _closed(job: Job, text: str, now: float) -> Job:
    from msgspec.structs import replace

    from tpukit.jobs.reasons import Reason, State

    if job.state.ended:
        return job
    attempts = job.attempts
    if attempts and not attempts[-1].state.ended:
        last = replace(attempts[-1], state=State.FAILED, reason=Reason.CANCELLED, detail=text, ended=now)
        attempts = (*attempts[:-1], last)
    return replace(
        job,
        state=State.CANCELLED,
        reason=Reason.CANCELLED,
        message=text,
        ended=now,
        wanted="run",
        attempts=attempts,
        outcome=None,
    )
