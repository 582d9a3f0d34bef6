"""Look at jobs: lists, and current states of jobs that no process drives."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tpukit.core.errors import TpukitError
from tpukit.jobs.records import ACTIVE, JOBS, Job

if TYPE_CHECKING:
    from tpukit.jobs.use_cases.session import Session
    from tpukit.kernel.store import Broken, Entry
    from tpukit.places.base import HostView, Observation, Place

SECONDS = 10.0
"""Longest wait for places: a command that shows jobs must not hang with them."""
ATTEMPTS_MOST = 20
"""Limit of attempts to follow that a place began by itself, to show one job."""
PAGE = 500


def matching(
    session: Session, *, active: bool = False, tag: str = "", place: str = "", limit: int = 0
) -> tuple[list[Job], list[Broken]]:
    """Return jobs of the store, newest first, and unreadable ones. `limit`: approximate; 0: all."""
    jobs: list[Job] = []
    broken: list[Broken] = []
    for page_jobs, page_broken in _pages(session, active, limit):
        jobs += [
            entry.value
            for entry in page_jobs
            if (not tag or tag in entry.value.tags) and (not place or place == entry.value.place)
        ]
        broken += page_broken
        if limit and len(jobs) + len(broken) >= limit:
            break
    return jobs, broken


def _pages(session: Session, active: bool, limit: int) -> Iterator[tuple[Sequence[Entry[Job]], Sequence[Broken]]]:
    cursor = ""
    while True:
        page = session.store.list(JOBS, states=ACTIVE if active else (), newest=True, after=cursor, limit=limit or PAGE)
        yield page.entries, page.broken
        cursor = page.next
        if not cursor:
            return


def undriven(session: Session, jobs: Sequence[Job]) -> list[Job]:
    """Return the active jobs among these that no process drives."""
    active = [job for job in jobs if not job.state.ended]
    driven = {lease.name for lease in session.store.leases()} if active else set()
    return [job for job in active if f"{JOBS.name}/{job.id}" not in driven]


def up_to_date(session: Session, job: Job) -> tuple[Job, tuple[HostView, ...] | None]:
    """Return a job, updated from its place if that runs it without a driver, and its hosts if they were seen."""
    if job.state.ended or not session.drives_itself(job.place):
        return job, None
    observed: list[Observation] = []
    try:
        driver = session.driver(observed=lambda job_id, seen: observed.append(seen))
        driver.round([job.id])
        driver.close()
        after = session.get(job.id)
    except TpukitError as error:  # the stored state is still worth showing
        session.say(job.id, str(error))
        return job, None
    same = bool(job.attempt and after.attempt and job.attempt.number == after.attempt.number)
    return after, observed[-1].hosts if observed and same else None


def as_seen_by_places(session: Session, jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with their current state in their places, if no process updates their record."""
    behind = [job for job in undriven(session, jobs) if job.attempts]
    if not behind:
        return list(jobs)
    seen: dict[str, Job] = {}
    asked = [
        threading.Thread(target=_collect, args=(session, name, behind, seen), daemon=True)
        for name in sorted({job.place for job in behind})
    ]
    for one in asked:
        one.start()
    for one in asked:
        one.join(SECONDS)  # after this time, show the record
    return [seen.get(job.id, job) for job in jobs]


def _collect(session: Session, name: str, jobs: Sequence[Job], seen: dict[str, Job]) -> None:
    from tpukit.places.base import Handle

    place = session.places.get(name)
    if place is None:
        return
    groups: dict[str, list[Job]] = {}
    try:
        for job in jobs:
            group = place.group(Handle.of(job).plan) if job.place == name else None
            if group is not None:
                groups.setdefault(group, []).append(job)
        for members in groups.values():
            _follow(session, place, members, seen)
    except TpukitError as error:
        session.say(name, f"jobs are shown as they were last seen: {error}")


def _follow(session: Session, place: Place, jobs: Sequence[Job], seen: dict[str, Job]) -> None:
    """Observe the jobs, and again those for which the place has begun another attempt by itself."""
    from tpukit.places.base import Handle

    for _ in range(ATTEMPTS_MOST):
        onward = []
        for job, one in zip(jobs, place.observe([Handle.of(job) for job in jobs]), strict=True):
            if not isinstance(one, TpukitError):
                seen[job.id] = _updated(session, job, one)
                if one.next is not None:
                    onward.append(seen[job.id])
        jobs = [job for job in onward if not job.state.ended]
        if not jobs:
            return


def _updated(session: Session, job: Job, seen: Observation) -> Job:
    """Return the job as a driver would record it. A job whose attempt was lost has not ended.

    If the place does not drive jobs itself, the job waits for a driver to decide what follows.
    """
    from msgspec.structs import replace

    from tpukit.jobs.controller.decide import decide
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.reasons import State

    if seen.state is State.PENDING:
        return job
    if session.drives_itself(job.place):
        after = decide(job, Plan.from_json(job.plan).spec, seen, session.clock.now()).job
        if after.outcome is None:
            return after
        how = after.outcome
        return replace(after, state=how.state, reason=how.reason, message=how.message, ended=seen.ended)
    if seen.state is not State.FAILED:
        return replace(job, state=seen.state, message=seen.detail or job.message, ended=seen.ended)
    why = f"{seen.reason}" if seen.reason else "its attempt ended"
    text = f"{why}; waiting for a driver to decide what follows"
    return replace(job, state=State.PENDING, reason=seen.reason, message=text)
