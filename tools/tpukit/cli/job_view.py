"""`tpu job show`: one job in detail, wherever it runs."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpukit.cli.completion import job_argument

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.records import Job
    from tpukit.places.base import HostView, Unmanaged
    from tpukit.places.unmanaged import UnmanagedJobs

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


def find(name: str) -> Job | tuple[UnmanagedJobs, Unmanaged]:
    """Return a job of this store, or an unmanaged one of a place."""
    from tpukit.cli import context
    from tpukit.core.errors import NotFound

    try:
        return context.find(name)
    except NotFound as missing:
        from tpukit.cli import unmanaged

        return unmanaged.find(name, missing)


def up_to_date(name: str) -> tuple[Job | tuple[UnmanagedJobs, Unmanaged], tuple[HostView, ...] | None]:
    """Return a job, updated from its place if that runs it without a driver, and its hosts if they were seen."""
    from tpukit.cli import context
    from tpukit.jobs.records import Job
    from tpukit.jobs.use_cases import looking

    job = find(name)
    return looking.up_to_date(context.session(), job) if isinstance(job, Job) else (job, None)


@click.command()
@job_argument
@json_option
def show(job: str, as_json: bool) -> None:
    """Show everything about a job: attempts, hosts and events."""
    from tpukit.cli import context
    from tpukit.jobs import report
    from tpukit.jobs.records import JOBS, Job

    record, seen = up_to_date(job)
    if not isinstance(record, Job):
        from tpukit.cli import unmanaged

        unmanaged.show(*record, as_json)
        return
    plan = _plan(record)
    hosts = seen if seen is not None else _hosts(record) if plan else ()
    events = context.store().events(JOBS, record.id)
    origin = record.attempt.origin if record.attempt else 0
    place = context.places().get(record.place)
    workdir = "" if plan is None else place.workdir(plan, origin) if place else plan.workdir_of(origin)
    command = list(plan.command) if plan else []
    code = str(plan.snapshot) if plan and plan.snapshot else ""
    if as_json:
        context.print_json(
            report.job_json(record)
            | {
                "workdir": workdir,
                "command": command,
                "code": code or None,
                "hosts": [report.host_json(host) for host in hosts],
                "events": [report.event_json(event) for event in events],
            }
        )
        return
    from rich.text import Text

    from tpukit.jobs.report import tables

    attempt = record.attempt
    unseen = report.unseen(hosts, attempt.started, attempt.ended or context.CLOCK.now()) if attempt else ""
    warning = attempt.warning if attempt else ""
    console = tables.console()
    console.print(
        Text.assemble((record.id, "bold"), " ", (record.state, tables.STYLES[record.state]), f"  {record.message}")
    )
    for label, value in (
        ("sent", f"{report.clock_time(record.created)} by {record.owner or 'an unknown user'}"),
        ("tpu", report.shape(record)),
        ("command", " ".join(command)),
        ("code", code),
        ("workdir", workdir),
        ("restarts", report.restarts(record)),
        ("attempts", f"{record.folded.count} earlier ones are counted, not listed" if record.folded else ""),
        ("progress", report.progress(hosts) or unseen),
        ("warning", warning),
        ("tags", " ".join(record.tags)),
        ("driver", _driver(record)),
    ):
        if value:
            console.print(Text.assemble((f"{label:9}", "dim"), value), soft_wrap=True)
    for table in (tables.attempts(record, context.CLOCK.now()), tables.hosts(hosts), tables.events(events)):
        if table.row_count:
            console.print()
            console.print(table)


def _plan(record: Job) -> Plan | None:
    from tpukit.cli import context
    from tpukit.core.errors import TpukitError
    from tpukit.jobs.plan import Plan

    try:
        return Plan.from_json(record.plan)
    except (TpukitError, KeyError, TypeError, AttributeError) as error:
        context.say(record.id, f"its plan cannot be read by this version: {error}")
        return None


def _hosts(record: Job) -> tuple[HostView, ...]:
    from tpukit.cli import context
    from tpukit.core.errors import TpukitError
    from tpukit.places.base import Handle

    if not record.attempts or record.place not in context.places():
        return ()
    try:
        (seen,) = context.places()[record.place].observe([Handle.of(record)])
        if isinstance(seen, TpukitError):
            raise seen
    except TpukitError as error:
        context.say(record.id, f"its hosts are not shown: {error}")
        return ()
    return seen.hosts


def _driver(record: Job) -> str:
    from tpukit.cli import context
    from tpukit.core.errors import TpukitError

    try:
        return "" if record.state.ended else context.session().driven_by_another(record.id)
    except TpukitError:
        return ""
