"""Active jobs without a driver: their state in their places, and a notice for the user."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.places.base import Observation, Place

SECONDS = 10.0
"""Longest wait for places: a command that shows jobs must not hang with them."""
ATTEMPTS_MOST = 20
"""Limit of attempts to follow that a place began by itself, to show one job."""
START = "start one with `tpu serve`, or with `tpu serve --install --now` for good"


def undriven(jobs: Sequence[Job]) -> list[Job]:
    """Return the active jobs among these that no process drives."""
    from tpukit.cli import context
    from tpukit.jobs.records import JOBS

    active = [job for job in jobs if not job.state.ended]
    driven = {lease.name for lease in context.store().leases()} if active else set()
    return [job for job in active if f"{JOBS.name}/{job.id}" not in driven]


def notice(jobs: Sequence[Job]) -> str:
    """Return a notice if jobs need a `tpu serve` and none runs, else ""."""
    from tpukit.cli import context
    from tpukit.jobs import report
    from tpukit.serve import presence

    waiting = [job for job in undriven(jobs) if not _drives_itself(job.place)]
    if not waiting or presence.running(context.store()):
        return ""
    seen, now = presence.last_seen(context.store()), context.CLOCK.now()
    since = f" since {report.clock_time(seen)} ({report.elapsed(seen, now)} ago)" if seen else ""
    never = "" if seen else " (none has run on this store yet)"
    jobs_wait = f"{waiting[0].id} is" if len(waiting) == 1 else f"{len(waiting)} jobs are"
    return f"no `tpu serve` runs{since}{never}: {jobs_wait} not driven; {START}"


def say(jobs: Sequence[Job]) -> None:
    if text := notice(jobs):
        click.echo(text, err=True)


def as_seen_by_places(jobs: Sequence[Job]) -> list[Job]:
    """Return the jobs with their current state in their places, if no process updates their record."""
    behind = [job for job in undriven(jobs) if job.attempts]
    if not behind:
        return list(jobs)
    seen: dict[str, Job] = {}
    asked = [
        threading.Thread(target=_collect, args=(name, behind, seen), daemon=True)
        for name in sorted({job.place for job in behind})
    ]
    for one in asked:
        one.start()
    for one in asked:
        one.join(SECONDS)  # after this time, show the record
    return [seen.get(job.id, job) for job in jobs]


def _collect(name: str, jobs: Sequence[Job], seen: dict[str, Job]) -> None:
    from tpukit.cli import context
    from tpukit.core.errors import TpukitError
    from tpukit.places.base import Handle

    place = context.places().get(name)
    if place is None:
        return
    groups: dict[str, list[Job]] = {}
    try:
        for job in jobs:
            group = place.group(Handle.of(job).plan) if job.place == name else None
            if group is not None:
                groups.setdefault(group, []).append(job)
        for members in groups.values():
            _follow(place, members, seen)
    except TpukitError as error:
        context.say(name, f"jobs are shown as they were last seen: {error}")


def _follow(place: Place, jobs: Sequence[Job], seen: dict[str, Job]) -> None:
    """Observe the jobs, and again those for which the place has begun another attempt by itself."""
    from tpukit.core.errors import TpukitError
    from tpukit.places.base import Handle

    for _ in range(ATTEMPTS_MOST):
        onward = []
        for job, one in zip(jobs, place.observe([Handle.of(job) for job in jobs]), strict=True):
            if not isinstance(one, TpukitError):
                seen[job.id] = _updated(job, one)
                if one.next is not None:
                    onward.append(seen[job.id])
        jobs = [job for job in onward if not job.state.ended]
        if not jobs:
            return


def _updated(job: Job, seen: Observation) -> Job:
    """Return the job as a driver would record it. A job whose attempt was lost has not ended.

    If the place does not drive jobs itself, the job waits for a driver to decide what follows.
    """
    from msgspec.structs import replace

    from tpukit.cli import context
    from tpukit.jobs.controller.decide import decide
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.reasons import State

    if seen.state is State.PENDING:
        return job
    if _drives_itself(job.place):
        after = decide(job, Plan.from_json(job.plan).spec, seen, context.CLOCK.now()).job
        if after.outcome is None:
            return after
        how = after.outcome
        return replace(after, state=how.state, reason=how.reason, message=how.message, ended=seen.ended)
    if seen.state is not State.FAILED:
        return replace(job, state=seen.state, message=seen.detail or job.message, ended=seen.ended)
    why = f"{seen.reason}" if seen.reason else "its attempt ended"
    text = f"{why}; waiting for a driver to decide what follows"
    return replace(job, state=State.PENDING, reason=seen.reason, message=text)


def _drives_itself(place: str) -> bool:
    from tpukit.cli import context

    return place in context.places() and context.places()[place].capabilities.drives_itself
