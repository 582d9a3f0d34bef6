"""A notice about active jobs without a driver."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tpukit.jobs.records import Job

START = "start one with `tpu serve`, or with `tpu serve --install --now` for good"


def notice(jobs: Sequence[Job]) -> str:
    """Return a notice if jobs need a `tpu serve` and none runs, else ""."""
    from tpukit.cli import context
    from tpukit.jobs import report
    from tpukit.jobs.use_cases import looking
    from tpukit.serve import presence

    session = context.session()
    waiting = [job for job in looking.undriven(session, jobs) if not session.drives_itself(job.place)]
    if not waiting or presence.running(session.store):
        return ""
    seen, now = presence.last_seen(session.store), session.clock.now()
    since = f" since {report.clock_time(seen)} ({report.elapsed(seen, now)} ago)" if seen else ""
    never = "" if seen else " (none has run on this store yet)"
    jobs_wait = f"{waiting[0].id} is" if len(waiting) == 1 else f"{len(waiting)} jobs are"
    return f"no `tpu serve` runs{since}{never}: {jobs_wait} not driven; {START}"


def say(jobs: Sequence[Job]) -> None:
    if text := notice(jobs):
        click.echo(text, err=True)
