"""Submission of several job files by one command: all are checked before the first is sent."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tpukit.cli.interrupts import Interrupted, Interrupts
from tpukit.core.errors import TpukitError
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.use_cases.session import Session


def send(session: Session, plans: Sequence[Plan], interrupts: Interrupts) -> int:
    """Record all jobs, print their ids, drive them until their place has accepted them, and return the exit code."""
    from tpukit.cli import unattended
    from tpukit.jobs.use_cases import batch, submission
    from tpukit.jobs.use_cases.following import HAND_OVER_SECONDS

    sent = []
    try:
        for plan in plans:
            sent.append(submission.record(session, submission.stage_code(plan)).id)
            click.echo(sent[-1])
        with interrupts.armed():
            left = batch.hand_over(session, sent)
            if left:
                jobs = counted(len(left), "job was", "jobs were")
                text = f"{jobs} not accepted by {session.get(left[0]).place} within {HAND_OVER_SECONDS:.0f} s"
                click.echo(f"{text}; `tpu serve` keeps trying, `tpu job show JOB` shows why", err=True)
    except Interrupted:
        click.echo(f"\n{len(sent)} of {len(plans)} jobs were sent; `tpu serve` drives them", err=True)
        return 130
    except TpukitError as error:
        raise type(error)(f"{len(sent)} of {len(plans)} jobs were sent: {error.message}", hint=error.hint) from error
    click.echo(f"{counted(len(sent), 'job was', 'jobs were')} sent; `tpu job list` shows them", err=True)
    unattended.say([session.get(job_id) for job_id in sent])
    return 0
