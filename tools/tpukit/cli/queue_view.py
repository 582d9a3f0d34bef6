"""`tpu queue list`, `show` and `follow`: the state of queued jobs."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tpukit.code_queue.client import Client
    from tpukit.code_queue.records import QueuedJob

STATUSES = ("pending", "scheduled", "running", "completed", "failed", "cancelled")
UNSERVED_SECONDS = 3.0
"""Time within which a restarting supervisor has the queue's lease again."""
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.command("list")
@click.option("--status", multiple=True, type=click.Choice(STATUSES), help="Only jobs of this status; repeatable.")
@click.option("--dead", is_flag=True, help="Only dead letters: jobs given up after too many lost attempts.")
@click.option("--limit", type=click.IntRange(min=0), default=50, show_default=True, help="0: all.")
@_json_option
def list_jobs(status: tuple[str, ...], dead: bool, limit: int, as_json: bool) -> None:
    """List jobs, newest first."""
    from tpukit.cli import context

    entries = client().list(states=["failed"] if dead else status, limit=0)
    chosen = [entry for entry in entries if entry.value.dead_letter or not dead]
    shown = chosen[:limit] if limit else chosen
    if as_json:
        context.print_json([_as_json(entry.key, entry.value) for entry in shown])
        return
    for entry in shown:
        job = entry.value
        why = str(job.error or "").strip().splitlines()
        click.echo(f"{entry.key:22}  {job.status:10}  {_age(job):>8}  {job.reason:14}  {why[-1][:80] if why else ''}")
    if len(shown) < len(chosen):
        click.echo(f"{len(chosen) - len(shown)} more; --limit 0 shows them", err=True)
    if not shown:
        click.echo("no such jobs" if status or dead else "no jobs yet; `tpu queue submit FILE` sends one", err=True)


@click.command()
@click.argument("job_id")
@_json_option
def show(job_id: str, as_json: bool) -> None:
    """Show a job: its document, its result and what happened to it."""
    from tpukit.cli import context
    from tpukit.code_queue.records import TIMES
    from tpukit.jobs import report

    queue = client()
    job = queue.get(job_id)
    events = queue.events(job_id)
    if as_json:
        listed = [{"at": report.iso(event.at), "text": event.text} for event in events]
        context.print_json({**_as_json(job_id, job), "events": listed})
        return
    for name, value in _fields(job_id, job).items():
        if value in (None, "", 0, {}, False):
            continue
        text = report.clock_time(value) if name in (*TIMES, "not_before") else str(value).rstrip()
        lines = text.splitlines() or [""]
        click.echo(f"{name:17}{lines[0]}")
        for line in lines[1:]:
            click.echo(f"{'':17}{line}")
    for event in events:
        click.echo(f"{report.clock_time(event.at)}  {event.text}")


@click.command()
@click.argument("job_id")
def follow(job_id: str) -> None:
    """Follow a job: print each status and its logs on stderr, and its result on stdout. Exit 1 if it failed."""
    follow_to_end(client(), job_id)


def follow_to_end(queue: Client, job_id: str) -> None:
    """Print what happens to a job until it ends, then its logs and its result."""
    from tpukit.cli import context
    from tpukit.code_queue.records import ENDED, PENDING
    from tpukit.core.errors import NotYet
    from tpukit.jobs import report

    said, unserved = "", False
    while True:
        job = queue.get(job_id)
        if job.status != said:
            said = str(job.status)
            where = f" on {job.worker}" if job.worker and job.status not in (PENDING, *ENDED) else ""
            click.echo(f"{report.clock_time(job.updated_at)}  {said}{where}", err=True)
        if job.status in ENDED:
            break
        try:
            queue.wait(job_id, UNSERVED_SECONDS, unless=said)
        except NotYet:
            if job.status == PENDING and not unserved and not _served():
                unserved = True
                text = "no `tpu queue serve` runs on this store; the job waits until one does"
                context.say(job_id, text)
    if job.logs:
        click.echo(job.logs.rstrip("\n"), err=True)
    print_end(job_id, job)


def _served() -> bool:
    from tpukit.cli import context
    from tpukit.code_queue.driver import LEADER

    return context.store().lease(LEADER) is not None


def print_end(job_id: str, job: QueuedJob) -> None:
    """Print the result of a job that completed. Raise TpukitError for any other."""
    from tpukit.core.errors import TpukitError

    if job.status != "completed":
        raise TpukitError(
            f"{job_id}: {job.status} ({job.reason})\n{job.error}",
            hint=f"`tpu queue show {job_id}` shows the whole error",
        )
    text = Path(job.result_uri).read_text(encoding="utf-8") if job.result_uri.startswith("/") else str(job.result)
    click.echo(text.rstrip("\n"))
    if job.result_uri.startswith("gs://"):
        click.echo(f"only the beginning; the whole result is in {job.result_uri}", err=True)


def client() -> Client:
    from tpukit.cli import context
    from tpukit.code_queue.client import Client

    return Client(context.store())


def _fields(key: str, job: QueuedJob) -> dict[str, Any]:
    import msgspec

    return {"id": key, **msgspec.to_builtins(job)}


def _as_json(key: str, job: QueuedJob) -> dict[str, Any]:
    from tpukit.code_queue.records import TIMES
    from tpukit.jobs import report

    fields = _fields(key, job)
    return {**fields, **{name: report.iso(fields[name]) for name in (*TIMES, "not_before")}}


def _age(job: QueuedJob) -> str:
    from tpukit.cli import context

    seconds = max(0.0, context.CLOCK.now() - job.created_at)
    return (
        f"{seconds:.0f}s" if seconds < 120 else f"{seconds / 60:.0f}m" if seconds < 7200 else f"{seconds / 3600:.0f}h"
    )
