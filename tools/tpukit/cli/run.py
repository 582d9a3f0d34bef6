"""`tpu run`: send a job and follow it."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit import places
from tpukit.cli.interrupts import Interrupted, Interrupts
from tpukit.cli.plan_view import resume_option, set_option
from tpukit.core.errors import Invalid, Problem, TpukitError

if TYPE_CHECKING:
    from tpukit.cli.follow import Follower
    from tpukit.jobs.plan import Plan


@click.command("run")
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=click.Path(path_type=Path))
@set_option
@resume_option
@click.option("--place", default=places.DEFAULT, show_default=True, help=f"Place to run at: {', '.join(places.NAMES)}.")
@click.option("--on", metavar="NAME", default="", help="TPU VMs to run on, for places with named machines.")
@click.option("--tag", "tags", multiple=True, metavar="TAG", help="Mark the job; repeatable.")
@click.option("--detach", is_flag=True, help="Send the job and return; `tpu serve` drives it.")
@click.option("--lose", metavar="SLICE-HOST@STEP", help="Rehearse: kill this host when it reaches this step.")
@click.option(
    "--fit/--no-fit",
    default=None,
    help="Compile it for its TPUs first, and refuse it if it does not fit (default: your setting fit).",
)
@click.option("--dry-run", is_flag=True, help="Print what would be done; do nothing.")
@click.option("--when", is_flag=True, help="Predict when it would start in its queue; do nothing.")
@click.option(
    "--on-interrupt",
    type=click.Choice(["ask", "stop", "detach"]),
    default="ask",
    show_default=True,
    help="Action on Ctrl-C once the job is sent; detach where stdin is not a terminal.",
)
def command(
    files: tuple[Path, ...],
    sets: tuple[str, ...],
    resume: bool,
    place: str,
    on: str,
    tags: tuple[str, ...],
    detach: bool,
    lose: str | None,
    fit: bool | None,
    dry_run: bool,
    when: bool,
    on_interrupt: str,
) -> None:
    """Send the job in FILE and follow it to its end. Several files are sent together, with --detach.

    The job's id is printed on stdout, progress on stderr. Exits 0 when the job completed, 1 when it failed or was
    stopped, 2 when FILE is wrong, 130 when you pressed Ctrl-C.

    \b
    Examples:
      tpu run job.yaml
      tpu run job.yaml --set slices=4 --set lr=0.01 --tag sweep-3
      tpu run job.yaml --detach && tpu serve
      tpu run a.yaml b.yaml --detach             both, or neither if one of them is wrong
      tpu run job.yaml --lose 1-0@30             does it survive the loss of a host?
      tpu run job.yaml --place gke --fit         only if the TPU compiler says that it fits
      tpu run job.yaml --place gke               on the cluster that kubectl would use
      tpu run job.yaml --place gke --when        when would it start there?
      tpu run job.yaml --place tpu-vm            on TPU VMs that are made for it
      tpu run job.yaml --place tpu-vm --on NAME  on a TPU VM that is there
    """
    interrupts = Interrupts().start()
    try:
        with interrupts.armed():
            from tpukit.cli import batch, context, plan_view, team_forecast
            from tpukit.cli.follow import Follower
            from tpukit.jobs import rehearsal
            from tpukit.jobs.use_cases import batch as batches
            from tpukit.jobs.use_cases import submission

            submission.check_tags("--tag", tags)
            session = context.session()
            if when and len(files) == 1:
                team_forecast.say_when(submission.make_plan(files[0], sets, place, tags))
                return
            if len(files) > 1:
                _check_several(detach or dry_run, on, lose, when)
                plans = batches.plans(session, files, sets, place, tags)
                for one in plans:
                    _check_fit(one, fit)
                for one in plans:
                    if dry_run:
                        plan_view.describe(submission.inspect(one), details=True)
                    submission.warn(session, one)
                if dry_run:
                    return
        if len(files) > 1:
            sys.exit(batch.send(session, plans, interrupts))
        with interrupts.armed():
            (file,) = files
            plan = submission.on_machines(session, submission.make_plan(file, sets, place, tags), on)
            loss = rehearsal.parse(lose, plan.spec.slices, plan.slice.hosts) if lose else None
            _check_loss(lose, detach, place)
            plan = submission.settle(session, replace(plan, resume=resume))
            _check_fit(plan, fit)
            if dry_run:
                plan_view.describe(submission.inspect(plan), details=True)
                submission.warn(session, plan)
                return
            submission.warn(session, plan)
            plan = submission.stage_code(plan)
    except Interrupted:
        click.echo("\nthe job was not sent", err=True)
        sys.exit(130)
    plan = submission.record(session, plan)
    _print_id(plan.id)
    follower = Follower(plan.id, on_interrupt, interrupts, loss)
    if detach:
        sys.exit(_hand_over(plan.id, follower))
    follower.start()
    with suppress(OSError):  # the output is closed, and the job does not depend on it
        plan_view.describe(plan)
    sys.exit(follower.follow())


def _hand_over(job_id: str, follower: Follower) -> int:
    from tpukit.cli import context, unattended

    code = follower.hand_over()
    if not code:
        with suppress(OSError, TpukitError):
            click.echo(f"{job_id} was sent; `tpu job show {job_id}` shows it", err=True)
            unattended.say([context.get(job_id)])
    return code


def _check_several(detached: bool, on: str, lose: str | None, when: bool) -> None:
    """Refuse options that apply to a single job only."""
    problems = []
    if not detached:
        hint = "add --detach; `tpu job wait JOB...` waits for their ends, `tpu job logs JOB -f` follows one"
        problems.append(Problem("FILE...", "only one job can be followed", hint))
    for option, given in (("--on", on), ("--lose", lose), ("--when", when)):
        if given:
            problems.append(Problem(option, "is for one job", "send the jobs one by one"))
    if problems:
        raise Invalid(problems)


def _check_fit(plan: Plan, wanted: bool | None) -> None:
    """If the option or the setting `fit` is set, refuse a job that the TPU compiler refuses, and print its report."""
    if not (plan.settings.fit if wanted is None else wanted):
        return
    from tpukit.cli import fit, fit_table

    report = fit.of(plan)
    for line in fit_table.lines(report):
        click.echo(line, err=True)
    if not report.can_run:
        what = f"{plan.spec.name} {report.verdict} on {plan.spec.slices} x {plan.slice.name}"
        raise Invalid(Problem("--fit", what, "change the job as the report says, or pass --no-fit"))


def _check_loss(lose: str | None, detach: bool, place: str) -> None:
    from tpukit.cli import context

    if lose and detach:
        raise Invalid(Problem("--lose", "only a job that is followed can be rehearsed", "leave out --detach"))
    if lose and not context.places()[place].capabilities.kills_hosts:
        hint = "leave out --lose; in a sandbox, `tpu sandbox faults` loses hosts"
        raise Invalid(Problem("--lose", f"not possible on {place}", hint))


def _print_id(job_id: str) -> None:
    """Print the id. A closed stdout loses the id, not the job."""
    from tpukit.cli.output import silence

    try:
        click.echo(job_id)
    except BrokenPipeError:
        silence(sys.stdout)
