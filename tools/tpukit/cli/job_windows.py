"""Window commands of `tpu job`: clear, ack, rules, and the hooks that scripts call."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpukit.cli.job_check import jobs_by_id
from tpukit.cli.who import user_name, user_option, window_name
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.sharing.windows import Window


@click.command()
@user_option
@click.option("--finished", is_flag=True, help="Only windows of jobs that completed.")
@click.option("--error", is_flag=True, help="Only windows of jobs that failed or were stopped.")
@click.option("--parents", is_flag=True, help="Also windows of ended jobs whose children are still active.")
@click.option("--missing", is_flag=True, help="Clear only windows whose job's record was removed.")
@click.option(
    "--dead", is_flag=True, help="Close jobs that no process drives and of which nothing runs, then clear them."
)
def clear(user: str, finished: bool, error: bool, parents: bool, missing: bool, dead: bool) -> None:
    """Drop windows of jobs that have ended, and free their TPUs. The jobs stay in `tpu job list`."""
    from tpukit.cli import context
    from tpukit.jobs.use_cases import closing
    from tpukit.sharing import windows

    session = context.session()
    name = user_name(user)
    listed = windows.of_user(context.store(), name)
    jobs = jobs_by_id([window.job for window in listed])
    if dead:
        closed = [closing.close_undriven(session, job) for job in _active(jobs)]
        jobs = jobs | {job.id: job for job in closed if job is not None}
    dropped = 0
    for window in listed:
        job = jobs.get(window.job)
        if missing:
            due = job is None
        elif job is None:
            due = not (finished or error)
        else:
            completed = job.state == "completed"
            due = job.state.ended and (not (finished or error) or (finished and completed) or (error and not completed))
        family = [jobs.get(one.job) for one in windows.children(listed, window)]
        if due and (parents or not any(one and not one.state.ended for one in family)):
            _drop(window)
            dropped += 1
    click.echo(f"{dropped} of {len(listed)} {'window' if len(listed) == 1 else 'windows'} cleared", err=True)


@click.command()
@user_option
def ack(user: str) -> None:
    """Have the driver look at active jobs now: those of --user, or all."""
    from tpukit.cli import context
    from tpukit.jobs.records import ACTIVE, JOBS
    from tpukit.kernel.store import change, everything
    from tpukit.sharing import windows

    session = context.session()
    store = session.store
    own = {window.job for window in windows.of_user(store, user_name(user))} if user else None
    active = [entry.key for entry in everything(store, JOBS, states=ACTIVE)]
    asked = [job_id for job_id in active if own is None or job_id in own]
    note, now = f"{context.owner()} asked the driver to look at the job", context.CLOCK.now()
    for job_id in asked:  # a write wakes the watchers of the store
        change(store, JOBS, job_id, lambda job: job, note=note, at=now)
    driven = sum(session.lease(job_id) is not None for job_id in asked)
    click.echo(f"{counted(len(asked), 'active job')}, {driven} driven", err=True)
    if driven < len(asked):
        click.echo("  `tpu serve` drives the rest", err=True)


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def rules(as_json: bool) -> None:
    """Show what each rule does when hardware is lost. `pre` is the default on spot TPUs, `pass` on others."""
    from tpukit.cli import context
    from tpukit.jobs.reasons import Lost
    from tpukit.jobs.rules import RULES

    if as_json:
        context.print_json(
            {name: {str(lost): str(does) for lost, does in rule.items()} for name, rule in RULES.items()}
        )
        return
    click.echo(f"{'rule':8} {'preempted':10} peer lost (grpc)")
    for name, rule in RULES.items():
        click.echo(f"{name:8} {rule[Lost.HOST]:10} {rule[Lost.PEER]}")
    click.echo("\nresume continues from the last checkpoint, rerun starts from the beginning;", err=True)
    click.echo("reapply deletes and recreates the TPU, and resumes", err=True)


@click.command("update-log")
@click.argument("window")
@click.argument("log")
@click.argument("code")
@click.argument("tpu", default="")
@click.argument("start", default="")
def update_log(window: str, log: str, code: str, tpu: str, start: str) -> None:
    """For scripts: record where the program of WINDOW (USER:NUMBER) writes its output, and where its code is."""
    from msgspec.structs import replace

    from tpukit.cli import context
    from tpukit.sharing import users, windows

    name = _window(window)
    one = windows.changed(context.store(), name, lambda old: replace(old, log=log, code=code))
    said = (
        f"window {one.number}: log {log}, code {code}" + (f", {tpu}" if tpu else "") + (f", {start}" if start else "")
    )
    users.note(context.store(), one.user, said, context.CLOCK.now())


@click.command()
@click.argument("window")
def finish(window: str) -> None:
    """For scripts: report that the program of WINDOW (USER:NUMBER) is done. The job ends when its hosts end."""
    from msgspec.structs import replace

    from tpukit.cli import context
    from tpukit.sharing import users, windows

    now = context.CLOCK.now()
    one = windows.changed(context.store(), _window(window), lambda old: replace(old, finished=now))
    users.note(context.store(), one.user, f"window {one.number}: its script reports that it is done", now)


def _window(text: str) -> str:
    from tpukit.core.errors import Invalid, Problem

    name = window_name(text)
    if not name:
        raise Invalid(Problem("WINDOW", f"{text!r} is not a window", "write USER:NUMBER, such as ada:3"))
    return name


def _active(jobs: dict[str, Job]) -> list[Job]:
    return [job for job in jobs.values() if not job.state.ended]


def _drop(window: Window) -> None:
    from contextlib import suppress

    from tpukit.cli import context
    from tpukit.core.errors import TpukitError
    from tpukit.sharing import inventory, windows

    vm = inventory.get(context.store(), window.tpu) if window.tpu else None
    if vm and vm.job == window.job:
        with suppress(TpukitError):
            inventory.release(context.store(), vm.name, context.CLOCK.now(), user=window.user)
    windows.drop(context.store(), window.name)
