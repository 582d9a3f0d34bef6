"""Actions of `tpu job` on jobs: resume, rerun, forget, adopt."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from tpukit.cli import job_view, questions
from tpukit.cli.completion import job_argument

if TYPE_CHECKING:
    from tpukit.sharing.windows import Window

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
    from tpukit.jobs.use_cases import requests

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

    if window:
        person_requests.asked(meant, wanted)
        _hold_again(window)
    interrupts = Interrupts().start()
    record = requests.again(context.session(), meant, wanted)
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
    from tpukit.jobs.use_cases import closing

    record = context.find(job)
    if record.state.ended:
        click.echo(f"{record.id} has already ended: {record.state}", err=True)
        return
    if not yes:
        questions.require(f"Close {record.id}? {closing.left_behind(context.session(), record)}")
    after = closing.forget(context.session(), record)
    click.echo(f"{after.id} {after.state}: {after.message}", err=True)


@click.command()
@click.argument("job")
def adopt(job: str) -> None:
    """Take over a JobSet of another user, by name or TEAM/NAME, so that it can be stopped and rerun from here."""
    from tpukit.cli import unmanaged
    from tpukit.core.errors import NotFound

    missing = NotFound(f"there is no job {job} in any reachable place", hint="`tpu job list` shows all")
    unmanaged.adopt(*unmanaged.find(job, missing))
