"""Actions of `tpu job` on jobs: resume, rerun, forget, adopt."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from tpukit.cli import job_view, questions
from tpukit.cli.completion import job_argument

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.sharing.windows import Window

NOTHING_RUNS = "No process of the job runs."
_on = click.option("--on", default="", metavar="TPU", help="TPU to run on, instead of the one that the job had.")
detach_option = click.option("--detach", is_flag=True, help="Return at once; `tpu serve` drives it.")


@click.command()
@job_argument
@_on
@detach_option
def resume(job: str, on: str, detach: bool) -> None:
    """Resume an ended job from its last checkpoint. With --on: as a new job on another TPU."""
    _again(job, "resume", on, detach)


@click.command()
@job_argument
@_on
@detach_option
def rerun(job: str, on: str, detach: bool) -> None:
    """Rerun an ended job from the beginning. With --on: as a new job on another TPU."""
    _again(job, "rerun", on, detach)


def _again(name: str, wanted: str, on: str, detach: bool) -> None:
    from tpukit.cli import context
    from tpukit.cli.follow import Follower
    from tpukit.cli.interrupts import Interrupts
    from tpukit.core.errors import Invalid, Problem
    from tpukit.jobs import person_requests
    from tpukit.jobs.records import Job

    meant = job_view.find(name)
    if not isinstance(meant, Job):
        from tpukit.cli import unmanaged

        unmanaged.rerun(*meant)
        return
    window = _window(name)
    if on and window is None:
        raise Invalid(
            Problem("--on", f"{name} is not a window", "name the job as USER:NUMBER; `tpu job check` shows them")
        )
    if window and on not in ("", window.tpu):
        from tpukit.cli import job_start

        job_start.again_on(meant, window, wanted, on, detach)
        return

    person_requests.asked(meant, wanted)
    if window:
        _hold_again(window)
    person_requests.check_code(context.places(), meant)
    interrupts = Interrupts().start()
    context.claim(meant.id)
    record = person_requests.again(context.store(), meant.id, wanted, context.owner(), context.CLOCK.now())
    click.echo(record.id)
    follower = Follower(record.id, "ask", interrupts)
    sys.exit(follower.hand_over() if detach else follower.follow())


def _window(name: str) -> Window | None:
    from tpukit.cli import context
    from tpukit.cli.who import window_name
    from tpukit.sharing import windows

    window = window_name(name)
    return windows.get(context.store(), window) if window else None


def _hold_again(window: Window) -> None:
    """Hold the TPU of a window again. Raise Conflict if another job got it in the meantime."""
    from tpukit.cli import context, vms
    from tpukit.sharing import inventory

    if window.tpu and inventory.get(context.store(), window.tpu):
        now = context.CLOCK.now()
        inventory.hold(*(context.store(), window.tpu, window.user, window.job, now, vms.is_active), window=window.name)


@click.command()
@job_argument
@click.option("--yes", is_flag=True, help="Do not ask.")
def forget(job: str, yes: bool) -> None:
    """Close a job whose cluster or machine no longer exists.

    Its record ends as cancelled and names what may be left behind; nothing is stopped, and no driver acts on it again.
    Refused while its place answers and something of it runs or hardware is held for its next attempt, and while another
    process drives it: `tpu job stop` stops it and releases its hardware.
    """
    from tpukit.cli import context
    from tpukit.core.errors import Conflict
    from tpukit.jobs.records import JOBS
    from tpukit.kernel.store import change

    record = context.find(job)
    if record.state.ended:
        click.echo(f"{record.id} has already ended: {record.state}", err=True)
        return
    if not yes:
        questions.require(f"Close {record.id}? {left_behind(record)}")
    with lease_taken(record.id):
        left = left_behind(record)
        text = f"closed by {context.owner()} without an answer from its place. {left}"
        now = context.CLOCK.now()

        def close(job: Job) -> Job:
            if (job.attempts, job.wanted) != (record.attempts, record.wanted):
                raise Conflict(f"{job.id} changed meanwhile", hint="run the command again")
            return closed(job, text, now)

        after = change(context.store(), JOBS, record.id, close, note=text, at=now).value
    click.echo(f"{after.id} {after.state}: {after.message}", err=True)


@contextmanager
def lease_taken(job_id: str) -> Iterator[None]:
    """Hold the lease of a job that is to be closed, unless a driver holds it.

    A driver that is suspended before it starts an attempt then finds its lease lost when it resumes.
    """
    from tpukit.cli import context
    from tpukit.jobs.records import JOBS
    from tpukit.kernel.leases import SECONDS

    lease = context.store().acquire(f"{JOBS.name}/{job_id}", context.holder(), SECONDS)
    try:
        yield
    finally:
        if lease is not None:
            context.store().release(lease)


def left_behind(record: Job) -> str:
    """Return a sentence about what may be left of a job.

    Raises:
        Conflict: Its place reports that something runs or is held, or another process drives it and may start an
            attempt, or its place cannot be seen from here.
    """
    from tpukit.cli import context
    from tpukit.core.errors import Conflict, TpukitError
    from tpukit.jobs.plan import Plan
    from tpukit.places.base import Handle

    place = context.places().get(record.place)
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
        if not record.attempts[-1].state.ended and (driver := context.driven_by_another(record.id)):
            hint = f"`tpu job stop {record.id}` asks it to stop the job; or end that process first"
            raise Conflict(f"{record.id} is driven by {driver}, which may start the job at any moment", hint=hint)
        return NOTHING_RUNS
    driver = context.driven_by_another(record.id)
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


def closed(job: Job, text: str, now: float) -> Job:
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


@click.command()
@click.argument("job")
def adopt(job: str) -> None:
    """Take over a JobSet of another user, by name or TEAM/NAME, so that it can be stopped and rerun from here."""
    from tpukit.cli import unmanaged
    from tpukit.core.errors import NotFound

    missing = NotFound(f"there is no job {job} in any reachable place", hint="`tpu job list` shows all")
    unmanaged.adopt(*unmanaged.find(job, missing))
