"""`tpu job stop` and `tpu job wait` for one or more jobs."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from tpukit.cli.completion import job_ids
from tpukit.core.errors import Invalid, NotFound, Problem

if TYPE_CHECKING:
    from tpukit.jobs.records import Job

TIMED_OUT = 124
"""Exit code of a timeout, as in `timeout`."""


@click.command()
@click.argument("jobs", metavar="[JOB]...", nargs=-1, shell_complete=job_ids)
@click.option("--tag", default="", help="Stop all active jobs with this tag.")
@click.option("--wait/--no-wait", default=True, help="Wait until no process of the jobs runs.", show_default=True)
def stop(jobs: tuple[str, ...], tag: str, wait: bool) -> None:
    """Stop jobs. Hosts get their grace time to save; then their processes are killed.

    \b
    Examples:
      tpu job stop pretrain
      tpu job stop one two --no-wait
      tpu job stop --tag sweep-3
    """
    from tpukit.cli import context, job_view
    from tpukit.jobs.records import Job
    from tpukit.jobs.use_cases import requests

    if not jobs and not tag:
        raise Invalid(
            Problem("JOB", "nothing to stop", "name the jobs, or --tag TAG; `tpu job list --active` lists them")
        )
    found = [job_view.find(name) for name in jobs]
    active = []
    for one in found:
        if not isinstance(one, Job):
            from tpukit.cli import unmanaged

            unmanaged.stop(*one)
        elif one.state.ended:
            click.echo(f"{one.id} has already ended: {one.state}", err=True)
        else:
            active.append(one)
    active += [job for job in _tagged(tag) if job.id not in {one.id for one in active}]
    for record in active:
        requests.stop(context.session(), record.id)
    if not _see_off(active, wait):
        sys.exit(1)


def _tagged(tag: str) -> list[Job]:
    from tpukit.cli import context
    from tpukit.jobs.use_cases import looking

    if not tag:
        return []
    jobs, _ = looking.matching(context.session(), active=True, tag=tag)
    if not jobs:
        raise NotFound(f"no active job has the tag {tag}", hint="`tpu job list --tag TAG` shows those that ended too")
    return jobs


def _see_off(records: Sequence[Job], wait: bool) -> bool:
    """Wait for jobs to stop, or report who stops them. Return False if an awaited job is unreachable."""
    from tpukit.cli import context
    from tpukit.jobs.use_cases import requests

    session = context.session()
    waited, unreachable = [], False
    for record in records:
        reachable, driven_by = session.reaches(record), session.driven_by_another(record.id)
        if wait and (reachable or driven_by):
            waited.append(record.id)
        elif driven_by:
            click.echo(f"{record.id} will be stopped by {driven_by}", err=True)
        elif reachable:
            _say_stopped(requests.stop_once(session, record.id))
        else:
            unreachable = True
            text = f"{record.id} is marked to be stopped: this machine cannot reach its hosts, and no process drives it"
            click.echo(f"{text}\n  {_for_unreachable(record)}", err=True)
    if waited:
        requests.wait_for_ends(session, waited)
    for job_id in waited:
        click.echo(f"{job_id} {session.get(job_id).state}", err=True)
    return not (wait and unreachable)


def _for_unreachable(record: Job) -> str:
    return f"start `tpu serve` on its machine; if that is gone for good, `tpu job forget {record.id}` closes the job"


def _say_stopped(job: Job) -> None:
    """Print the end of a job that was stopped once, or what is left to do."""
    if job.state.ended:
        click.echo(f"{job.id} {job.state}", err=True)
        return
    click.echo(
        f"{job.id} will be stopped, but no process drives it: run `tpu serve`, or `tpu job stop {job.id}` to wait for "
        "its end",
        err=True,
    )


@click.command("wait")
@click.argument("jobs", metavar="JOB...", nargs=-1, required=True, shell_complete=job_ids)
@click.option("--timeout", default="", metavar="DURATION", help="Give up after this long (exit code 124).")
def wait(jobs: tuple[str, ...], timeout: str) -> None:
    """Wait until all of these jobs have ended. Exits 0 when all completed, 1 when one did not.

    \b
    Examples:
      tpu job wait pretrain && tpu run eval.yaml
      tpu job wait $(tpu run a.yaml b.yaml --detach) --timeout 12h
    """
    from tpukit.cli import context, unattended
    from tpukit.jobs import report
    from tpukit.jobs.reasons import State
    from tpukit.jobs.use_cases.requests import ASK_SECONDS

    limit = _duration(timeout)
    left = [context.find(name).id for name in jobs]
    every, began = list(dict.fromkeys(left)), context.CLOCK.monotonic()
    notice = ""
    while True:
        records = [_up_to_date(job_id) for job_id in left]
        for record in records:
            if record.state.ended:
                reason = f" ({record.reason})" if record.reason else ""
                click.echo(f"{record.id} {record.state}{reason}", err=True)
        left = [record.id for record in records if not record.state.ended]
        if not left:
            break
        if (now := unattended.notice([record for record in records if not record.state.ended])) != notice:
            notice = now
            click.echo(notice or "driven now", err=True)
        if limit and context.CLOCK.monotonic() - began >= limit:
            states = ", ".join(f"{record.id} is still {record.state}" for record in records if not record.state.ended)
            click.echo(f"{states} after {report.duration(limit)}", err=True)
            sys.exit(TIMED_OUT)
        context.CLOCK.sleep(ASK_SECONDS)
    if any(context.get(job_id).state is not State.COMPLETED for job_id in every):
        sys.exit(1)


def _up_to_date(job_id: str) -> Job:
    """Return the record, updated from its place. An unreachable store or place is retried on the next call."""
    from tpukit.cli import context, job_view
    from tpukit.jobs.records import Job

    record, _ = job_view.up_to_date(job_id)
    return record if isinstance(record, Job) else context.get(job_id)


def _duration(text: str) -> float:
    from tpukit.jobs.spec import durations

    try:
        return float(durations.parse(text)) if text else 0.0
    except ValueError as error:
        raise Invalid(Problem("--timeout", f"{text!r} is not a duration", "write 30s, 10m or 12h")) from error
