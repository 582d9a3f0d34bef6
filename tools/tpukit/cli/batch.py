"""Submission of several job files by one command: all are checked before the first is sent."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.cli.interrupts import Interrupted, Interrupts
from tpukit.core.errors import Invalid, Problem, TpukitError
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan


def plans(files: Sequence[Path], sets: tuple[str, ...], place: str, tags: tuple[str, ...]) -> list[Plan]:
    """Return the plans of all files as they would be sent now.

    Raises:
        Invalid: Files are invalid, or the place would refuse their jobs. Has the problems of all, each with its file.
    """
    from tpukit.cli import submission

    made, problems = [], list[Problem]()
    for file in files:
        try:
            made.append(submission.make_plan(file, sets, place, tags))
        except Invalid as error:
            problems += [_of(file, one) for one in error.problems]
    if problems:
        raise Invalid(problems)
    settled, refused = submission.settle_all(made)
    if refused:
        raise Invalid([_of(files[number], one) for number, one in refused])
    return settled


def send(plans: Sequence[Plan], interrupts: Interrupts) -> int:
    """Record all jobs, print their ids, drive them until their place has accepted them, and return the exit code."""
    from tpukit.cli import context, submission, unattended

    sent = []
    try:
        for plan in plans:
            sent.append(submission.record(submission.stage_code(plan)).id)
            click.echo(sent[-1])
        with interrupts.armed():
            _hand_over(sent)
    except Interrupted:
        click.echo(f"\n{len(sent)} of {len(plans)} jobs were sent; `tpu serve` drives them", err=True)
        return 130
    except TpukitError as error:
        raise type(error)(f"{len(sent)} of {len(plans)} jobs were sent: {error.message}", hint=error.hint) from error
    click.echo(f"{counted(len(sent), 'job was', 'jobs were')} sent; `tpu job list` shows them", err=True)
    unattended.say([context.get(job_id) for job_id in sent])
    return 0


def _hand_over(job_ids: Sequence[str]) -> None:
    """Drive the jobs until their place has accepted all of them and continues by itself."""
    from tpukit.cli import context
    from tpukit.cli.follow import HAND_OVER_SECONDS, TICK_SECONDS

    place = context.places()[context.get(job_ids[0]).place]
    driver = context.driver()
    due = context.CLOCK.monotonic() + HAND_OVER_SECONDS
    left = list(job_ids)
    try:
        while place.capabilities.drives_itself and left:
            driver.round(left)
            left = [job_id for job_id in left if not _is_there(job_id)]
            if left and context.CLOCK.monotonic() > due:
                jobs = counted(len(left), "job was", "jobs were")
                text = f"{jobs} not accepted by {place.name} within {HAND_OVER_SECONDS:.0f} s"
                click.echo(f"{text}; `tpu serve` keeps trying, `tpu job show JOB` shows why", err=True)
                return
            if left:
                context.CLOCK.sleep(TICK_SECONDS)
    finally:
        driver.close()


def _is_there(job_id: str) -> bool:
    """Return True if the place has the job: the record of a started attempt tells where it runs."""
    from tpukit.cli import context

    job = context.get(job_id)
    return job.state.ended or bool(job.attempt and job.attempt.learned)


def _of(file: Path, problem: Problem) -> Problem:
    where = problem.where if problem.where.startswith(str(file)) else f"{file}: {problem.where}".rstrip(": ")
    return Problem(where, problem.what, problem.hint)
