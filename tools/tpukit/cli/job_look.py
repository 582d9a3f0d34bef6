"""`tpu job show` and `tpu job logs`: one job from near, wherever it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from tpukit.places.base import HostView
    from tpukit.places.gke.others import Summary
    from tpukit.store import Job
    from tpukit.store.sqlite import SqliteStore

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def find(jobs: SqliteStore, name: str) -> Job | Summary:
    """A job of this store, or one that others sent to the cluster."""
    from tpukit.cli import here
    from tpukit.errors import NotFound

    try:
        return here.find(jobs, name)
    except NotFound as missing:
        from tpukit.cli import others

        return others.find(name, missing)


def _now(jobs: SqliteStore, name: str) -> Job | Summary:
    """The same, brought up to what its cluster has: that went on while nobody looked."""
    from tpukit.cli import here
    from tpukit.store import Job

    found = find(jobs, name)
    if isinstance(found, Job) and found.place == "gke" and not found.state.ended:
        here.loop(jobs).tick([found.id])
        return jobs.get(found.id)
    return found


@click.command()
@click.argument("job")
@json_option
def show(job: str, as_json: bool) -> None:
    """Everything about a job: attempts, hosts, and what happened when."""
    from tpukit import report
    from tpukit.cli import here
    from tpukit.errors import TpukitError
    from tpukit.places.base import Handle
    from tpukit.plan import Plan
    from tpukit.store import Job

    jobs = here.store()
    record = _now(jobs, job)
    if not isinstance(record, Job):
        from tpukit.cli import others

        others.show(record, as_json)
        return
    hosts: tuple[HostView, ...] = ()
    try:
        if record.attempts:
            hosts = here.places()[record.place].observe([Handle.of(record)])[0].hosts
    except TpukitError as error:  # what is remembered of the job is worth showing all the same
        here.say(record.id, f"its hosts are not shown: {error}")
    events = jobs.events(record.id)
    plan = Plan.from_json(record.plan)
    origin = record.attempt.origin if record.attempt else 0
    workdir = here.local().workdir(plan, origin) if record.place == "local" else plan.workdir_of(origin)
    if as_json:
        here.print_json(
            report.job_json(record)
            | {
                "workdir": workdir,
                "command": list(plan.command),
                "code": str(plan.snapshot) if plan.snapshot else None,
                "hosts": [report.host_json(host) for host in hosts],
                "events": [report.event_json(event) for event in events],
            }
        )
        return
    from rich.text import Text

    from tpukit.report import tables

    console = tables.console()
    console.print(
        Text.assemble((record.id, "bold"), " ", (record.state, tables.STYLES[record.state]), f"  {record.message}")
    )
    for label, value in (
        ("tpu", report.shape(record)),
        ("command", " ".join(plan.command)),
        ("code", str(plan.snapshot) if plan.snapshot else ""),
        ("workdir", workdir),
        ("restarts", report.restarts(record)),
        ("tags", " ".join(record.tags)),
    ):
        if value:
            console.print(Text.assemble((f"{label:9}", "dim"), value), soft_wrap=True)
    for table in (tables.attempts(record, here.CLOCK.now()), tables.hosts(hosts), tables.events(events)):
        if table.row_count:
            console.print()
            console.print(table)


@click.command()
@click.argument("job")
@click.option("--host", default="", help="Only this host: its name, or SLICE-HOST such as 0-1.")
@click.option("--attempt", type=click.IntRange(min=0), help="Of this attempt; the newest unless told.")
@click.option("-f", "--follow", is_flag=True, help="Go on as lines come.")
def logs(job: str, host: str, attempt: int | None, follow: bool) -> None:
    """What the hosts of a job printed, each line behind its host."""
    from tpukit.cli import here
    from tpukit.errors import NotFound
    from tpukit.places.base import Handle
    from tpukit.plan import SLICE_JOB
    from tpukit.store import Job

    record = _now(here.store(), job)
    if not isinstance(record, Job):
        from tpukit.cli import others

        others.logs(record, follow)
        return
    if not record.attempts:
        raise NotFound(f"{record.id} has no attempt yet", hint="`tpu serve` drives jobs that nobody follows")
    if (attempt or 0) >= len(record.attempts):
        raise NotFound(f"{record.id} has no attempt {attempt}", hint=f"the last one is {len(record.attempts) - 1}")
    prefix = f"{record.id}-{SLICE_JOB}-"
    name = f"{prefix}{host}" if host and not host.startswith(record.id) else host
    handle = Handle.of(record, attempt)
    place = here.places()[record.place]
    hosts = [view.name for view in place.observe([handle])[0].hosts]
    if name and name not in hosts:
        known = ", ".join(known.removeprefix(prefix) for known in hosts)
        raise NotFound(f"{record.id} has no host {host}", hint=f"it has {known}")
    for line in place.logs(handle, name, follow=follow):
        click.echo(line.text if host else f"{line.host.removeprefix(record.id + '-')}: {line.text}")
