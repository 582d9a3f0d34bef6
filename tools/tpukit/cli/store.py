"""`tpu store`: where jobs are stored, which processes hold leases, and how to move to another store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import click

from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from tpukit.kernel.store import Store


@click.group("store", invoke_without_command=True)
@click.pass_context
def command(ctx: click.Context) -> None:
    """Show and move the store of jobs: a file on this machine, or a Firestore database that a team shares.

    \b
    Examples:
      tpu store                                  which store, its contents, who works on it
      tpu store move firestore://my-project-1    copy all jobs to a database
      tpu store move sqlite                      and back to this machine
    """
    if ctx.invoked_subcommand is None:
        ctx.invoke(show)


@command.command()
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def show(as_json: bool = False) -> None:
    """Show the store in use: its jobs, the holders of leases, and records that cannot be read."""
    with _current() as store:
        summary = _summary(store)
    if as_json:
        import json

        click.echo(json.dumps(summary, indent=2))
        return
    jobs = summary["jobs"]
    click.echo(f"store       {summary['store']}" + (f"  {summary['file']}" if summary["file"] else ""))
    if summary["moved_to"]:
        click.echo(f"moved to    {summary['moved_to']}")
    click.echo(f"jobs        {jobs['active']} active, {jobs['ended']} ended")
    for index, lease in enumerate(summary["leases"]):
        click.echo(f"{'' if index else 'leases':12}{lease['name']}  {lease['holder']}, {lease['seconds']:.0f} s left")
    for index, broken in enumerate(summary["unreadable"]):
        click.echo(f"{'' if index else 'unreadable':12}{broken['key']}  {broken['why']}")
    if summary["unreadable"]:
        click.echo("What cannot be read is left alone; a newer tpukit may have written it.", err=True)


@command.command()
@click.argument("destination")
@click.option("--delete", is_flag=True, help="Remove from the old store what is in the new one.")
def move(destination: str, delete: bool) -> None:
    """Copy all jobs, users, shared TPUs and events to DESTINATION: sqlite, or firestore://PROJECT[/DATABASE].

    Jobs that are there already are not touched, so that it can be called again. Active jobs run on: hardware keeps the
    mark that it was made with. The old store keeps its documents, unless --delete says otherwise, and is closed: every
    command that opens it names the new one. Move back to use it again.
    """
    from tpukit.cli import context
    from tpukit.code_queue.records import TPU_JOBS
    from tpukit.core import paths
    from tpukit.core.errors import Conflict, Invalid
    from tpukit.fleet.records import WORKERS
    from tpukit.jobs.records import JOBS
    from tpukit.jobs.use_cases.session import sender_of
    from tpukit.kernel.store import mark, unreadable
    from tpukit.kernel.store.home import open_store
    from tpukit.kernel.store.move import move as move_jobs
    from tpukit.sharing.collections import KINDS

    with _current() as source:
        target = open_store(destination, paths.state(), left=True)
        try:
            if target.address == source.address:
                raise Invalid(f"{source.address} is where the jobs are", hint="name another store")
            if held := [*source.leases(), *target.leases()]:
                who = ", ".join(sorted({lease.holder.name for lease in held}))
                hint = "stop it first (`tpu serve`, or a `tpu run` in a terminal), then move"
                raise Conflict(f"jobs are driven by {who}", hint=hint)
            if found := unreadable(source, JOBS):
                names = ", ".join(one.key for one in found)
                hint = "upgrade tpukit, then move: the new store would take their hardware for unowned"
                raise Conflict(f"jobs that this version cannot read: {names}", hint=hint)
            senders = sender_of(source), sender_of(target)
            now = context.CLOCK.now()
            how = {"replacing": mark.begin_move(source, target, senders, active=_holds_hardware(source), at=now)}
            moved = move_jobs(source, target, JOBS, delete=delete, **how)
            shared = [move_jobs(source, target, kind, delete=delete, **how) for kind in (*KINDS, WORKERS, TPU_JOBS)]
            mark.end_move(target)
        finally:
            target.close()
        click.echo(f"{_count(len(moved.copied))} copied from {source.address} to {target.address}", err=True)
        if moved.present:
            click.echo(f"{_count(len(moved.present))} there already", err=True)
        if people := sum(len(one.copied) for one in shared):
            click.echo(
                f"{counted(people, 'record')} of users, TPUs, windows, aliases, fleets and the queue copied", err=True
            )
        if delete:
            click.echo(f"{_count(len(moved.copied) + len(moved.present))} removed from {source.address}", err=True)
        for broken in [*moved.broken, *(one for each in shared for one in each.broken)]:
            click.echo(f"{broken.key} cannot be read and was left alone: {broken.why}", err=True)
    _say_setting(target.address)
    if different := [*moved.different, *(key for one in shared for key in one.different)]:
        names = ", ".join(different)
        raise Conflict(f"in both stores, and not the same: {names}", hint="remove them from one store, then move again")


def _holds_hardware(store: Store) -> bool:
    from tpukit.fleet.records import ACTIVE as WORKING
    from tpukit.fleet.records import WORKERS
    from tpukit.jobs.records import ACTIVE, JOBS

    return bool(
        store.list(JOBS, states=ACTIVE, limit=1).entries or store.list(WORKERS, states=WORKING, limit=1).entries
    )


def _say_setting(address: str) -> None:
    import os

    from tpukit.jobs.spec import settings

    click.echo(f"to use it, write into {settings.path()}:", err=True)
    click.echo(f"store: {address}")
    if os.environ.get("TPUKIT_STORE"):
        click.echo("and mind $TPUKIT_STORE, which counts for more", err=True)


@contextmanager
def _current() -> Iterator[Store]:
    from tpukit.core import paths
    from tpukit.jobs.spec import settings
    from tpukit.kernel.store.home import open_store

    store = open_store(settings.store(), paths.state(), left=True)
    try:
        yield store
    finally:
        store.close()


def _summary(store: Store) -> dict[str, Any]:
    from tpukit.jobs.records import JOBS
    from tpukit.kernel.store import mark

    active = ended = 0
    unreadable: list[dict[str, str]] = []
    after = ""
    while True:
        page = store.list(JOBS, after=after, limit=500)
        over = sum(entry.value.state.ended for entry in page.entries)
        active, ended = active + len(page.entries) - over, ended + over
        unreadable += [{"key": broken.key, "why": broken.why} for broken in page.broken]
        after = page.next
        if not after:
            break
    now = store.now()
    return {
        "store": store.address,
        "file": str(getattr(store, "path", "")),
        "moved_to": mark.read(store).moved_to,
        "jobs": {"active": active, "ended": ended},
        "leases": [
            {"name": lease.name, "holder": lease.holder.name, "seconds": lease.ends - now} for lease in store.leases()
        ],
        "unreadable": unreadable,
    }


def _count(number: int) -> str:
    return counted(number, "job")
