"""`tpu job logs`: output of hosts, and the result of a job that was followed to its end."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

import click

from tpukit.cli.completion import job_argument

if TYPE_CHECKING:
    from tpukit.places.base import Handle, Line, Place, Unmanaged
    from tpukit.places.unmanaged import UnmanagedJobs

SETTLE_SECONDS = 10.0
"""Longest wait for the record to report how an attempt ended after its hosts have ended."""
POLL_SECONDS = 0.2


@click.command()
@job_argument
@click.option("--host", default="", help="Print only this host: its name, or SLICE-HOST such as 0-1.")
@click.option("--attempt", type=click.IntRange(min=0), help="Number of the attempt (default: the newest).")
@click.option("-f", "--follow", is_flag=True, help="Print new lines as they appear, then how the job ended.")
@click.option("--tail", type=click.IntRange(min=0), metavar="LINES", help="Print only the last lines of each host.")
@click.option("--since", default="", metavar="DURATION", help="Print only lines of the last 30s, 10m or 2h.")
@click.option("--timestamps", is_flag=True, help="Print the time (UTC) before each line.")
def logs(
    job: str, host: str, attempt: int | None, follow: bool, tail: int | None, since: str, timestamps: bool
) -> None:
    """Print the logs of a job's hosts, each line behind its host.

    Only some places know when a line was printed: --since and --timestamps are for jobs on gke.

    \b
    Examples:
      tpu job logs pretrain -f                        all hosts, to the end
      tpu job logs pretrain --host 0-1 --tail 20      the last lines of one host
      tpu job logs pretrain --since 10m --timestamps
    """
    from tpukit.cli import context, job_view
    from tpukit.jobs.records import Job
    from tpukit.jobs.use_cases import logs as reading

    age = _seconds(since)
    record, _ = job_view.up_to_date(job)
    if not isinstance(record, Job):
        theirs, one = record
        prefix = f"{one.id.partition('/')[2]}-"
        _print(partial(_unmanaged, theirs, one), tail, follow, age, _printer(prefix, timestamps, alone=False))
        return
    place = context.places()[record.place]
    if since or timestamps:
        _check_times(record.place, place.capabilities.log_times)
    handle = reading.handle_of(record, attempt)
    name = reading.host_name(handle, host)
    _print(
        partial(_of_place, place, handle, name),
        tail,
        follow,
        age,
        _printer(f"{record.id}-", timestamps, alone=bool(host)),
    )
    if follow:
        _say_end(record.id, handle.attempt.number)


def _unmanaged(place: UnmanagedJobs, one: Unmanaged, follow: bool) -> Iterator[Line]:
    return place.unmanaged_logs(one, follow=follow)


def _of_place(place: Place, handle: Handle, host: str, follow: bool) -> Iterator[Line]:
    return place.logs(handle, host, follow=follow)


def _print(
    read: Callable[[bool], Iterable[Line]],
    tail: int | None,
    follow: bool,
    age: float,
    show: Callable[[Line], None],
) -> None:
    from tpukit.cli import context
    from tpukit.jobs.use_cases import logs

    since = context.CLOCK.now() - age if age else 0.0
    for line in logs.read(read, follow=follow, tail=tail):
        if not since or line.at >= since:
            show(line)


def _printer(prefix: str, timestamps: bool, *, alone: bool) -> Callable[[Line], None]:
    from datetime import UTC, datetime

    def show(line: Line) -> None:
        stamp = ""
        if timestamps:
            at = datetime.fromtimestamp(line.at, UTC).isoformat(timespec="milliseconds") if line.at else "-"
            stamp = f"{at.replace('+00:00', 'Z')} "
        click.echo(stamp + (line.text if alone else f"{line.host.removeprefix(prefix)}: {line.text}"))

    return show


def _seconds(since: str) -> float:
    from tpukit.core.errors import Invalid, Problem
    from tpukit.jobs.spec import durations

    try:
        return float(durations.parse(since)) if since else 0.0
    except ValueError as error:
        raise Invalid(Problem("--since", f"{since!r} is not a duration", "write 30s, 10m or 2h")) from error


def _check_times(place: str, known: bool) -> None:
    from tpukit.core.errors import Invalid, Problem

    if not known:
        hint = "leave out --since and --timestamps; --tail prints the last lines"
        raise Invalid(Problem("--since, --timestamps", f"{place} does not record when a line was printed", hint))


def _say_end(job_id: str, attempt: int) -> None:
    """Print how the followed attempt ended, and what happens to the job."""
    from tpukit.cli import context, job_view

    due = context.CLOCK.monotonic() + SETTLE_SECONDS
    while True:
        job_view.up_to_date(job_id)
        job = context.get(job_id)
        ended = next((one for one in job.attempts if one.number == attempt and one.state.ended), None)
        if job.state.ended or (ended and job.attempts[-1].number > attempt) or context.CLOCK.monotonic() > due:
            break
        context.CLOCK.sleep(POLL_SECONDS)
    if job.state.ended:
        reason = f" ({job.reason})" if job.reason else ""
        click.echo(f"{job.id} {job.state}{reason}" + (f": {job.message}" if job.message else ""), err=True)
    elif ended:
        text = f"{job.id}: attempt {attempt} ended ({ended.reason or ended.state})"
        click.echo(f"{text}; `tpu job logs {job.id} -f` follows attempt {job.attempts[-1].number}", err=True)
    else:
        click.echo(f"{job.id}: no host of attempt {attempt} runs; the job is {job.state}", err=True)
