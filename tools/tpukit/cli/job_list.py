"""`tpu job list`: jobs of the store, newest first, and unmanaged jobs in places."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tpukit import places
from tpukit.cli.job_view import json_option

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.kernel.store import Broken

STATES = ("pending", "scheduled", "running", "completed", "failed", "cancelled")
"""Values of `tpukit.jobs.reasons.State`, which `--help` does not load."""
MOST = 50
"""Limit of listed jobs without `--all`."""


@click.command("list")
@click.option("--all", "unlimited", is_flag=True, help=f"List all jobs, not only the newest {MOST}.")
@click.option("--active", is_flag=True, help="Only jobs that have not ended.")
@click.option("--tag", default="", help="Only jobs with this tag.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES),
    metavar="STATE",
    help=f"Only jobs in this state; repeatable: {', '.join(STATES)}.",
)
@click.option("--place", default="", help=f"Only jobs of this place: {', '.join(places.NAMES)}.")
@json_option
def command(
    unlimited: bool = False,
    active: bool = False,
    tag: str = "",
    states: tuple[str, ...] = (),
    place: str = "",
    as_json: bool = False,
) -> None:
    """List jobs, newest first.

    If jobs were sent to a cluster, or KUBECONFIG names one, the JobSets of other users there follow.
    """
    from tpukit.cli import context, unattended
    from tpukit.jobs.use_cases import looking, submission

    submission.check_place(place)
    session = context.session()
    limit = 0 if unlimited or tag or active or place or states else MOST + 1
    jobs, broken = looking.matching(session, active=active, tag=tag, place=place, limit=limit)
    theirs = [] if tag else _unmanaged(jobs, place, active)
    cut = bool(limit) and len(jobs) + len(broken) > MOST
    jobs = looking.as_seen_by_places(session, jobs[:MOST] if cut else jobs)
    if states:
        jobs, theirs = ([job for job in some if job.state in states] for some in (jobs, theirs))
    if as_json:
        from tpukit.jobs import report

        context.print_json([report.job_json(job) for job in [*jobs, *theirs]] + [_broken_json(one) for one in broken])
        return
    if not jobs and not theirs and not broken:
        click.echo(_nothing(active, tag, place, states), err=True)
        return
    from tpukit.jobs.report import tables

    now = context.CLOCK.now()
    if jobs:
        several = len({job.owner for job in jobs}) > 1
        tables.console().print(tables.jobs(jobs, now, owners=several))
    unattended.say(jobs)
    for one in broken:
        click.echo(f"{one.key} cannot be read by this version: {one.why}", err=True)
    if cut:
        click.echo(f"the newest {MOST}; --all shows the rest", err=True)
    if theirs:
        if jobs:
            click.echo()
        click.echo("sent by others (read-only; `tpu job adopt JOB` takes one over):", err=True)
        tables.console().print(tables.jobs(theirs, now, owners=True))


def _unmanaged(jobs: Sequence[Job], place: str, active: bool) -> list[Job]:
    from tpukit.cli import unmanaged

    return [job for job in unmanaged.listed(jobs, place) if not active or not job.state.ended]


def _nothing(active: bool, tag: str, place: str, states: tuple[str, ...]) -> str:
    from tpukit.cli import context
    from tpukit.jobs.records import JOBS

    if not context.store().keys(JOBS):
        return "no jobs yet; `tpu run FILE` sends one"
    kind = "active jobs" if active else "jobs"
    which = (f" with the tag {tag}" if tag else "") + (f" of {place}" if place else "")
    which += f" in state {' or '.join(states)}" if states else ""
    return f"no {kind}{which}; `tpu job list` shows the others"


def _broken_json(one: Broken) -> dict[str, Any]:
    return {"id": one.key, "state": None, "message": f"cannot be read by this version: {one.why}"}
