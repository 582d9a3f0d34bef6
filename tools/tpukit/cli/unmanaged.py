"""Unmanaged jobs, which run in a place but are in no store of ours: display, stop, rerun and adoption."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import click

from tpukit.cli import context
from tpukit.core.errors import NotFound, TpukitError
from tpukit.jobs.records import JOBS, Attempt, Job
from tpukit.places import by_name

if TYPE_CHECKING:
    from tpukit.places.base import Unmanaged
    from tpukit.places.unmanaged import UnmanagedJobs


def listed(jobs: Sequence[Job], only: str) -> list[Job]:
    """Return unmanaged jobs as records for tables and JSON. `only`: a single place to query."""
    there = [(place, one) for place in _places(only, {job.place for job in jobs}) for one in _ask(place, jobs)]
    names = context.store().keys(JOBS) if there else frozenset()
    return [as_job(place.name, one) for place, one in there if not _is_ours(one, jobs, names)]


def find(name: str, missing: NotFound) -> tuple[UnmanagedJobs, Unmanaged]:
    """Return an unmanaged job by TEAM/NAME, or by a name that only one team has. Raise `missing` if none matches."""
    matches = []
    for place in _places("", set(context.places())):
        try:
            there = place.unmanaged(_teams(()))
        except TpukitError:
            continue
        matches += [(place, one) for one in there if name in (one.id, one.id.partition("/")[2])]
    if not matches:
        raise missing
    if len(matches) > 1:
        raise NotFound(f"{name} could be {', '.join(one.id for _, one in matches)}", hint="write TEAM/NAME")
    return matches[0]


def as_job(place: str, one: Unmanaged) -> Job:
    attempts = tuple(Attempt(number, stage=number, origin=0, state=one.state) for number in range(one.attempts))
    return Job(
        one.id,
        place,
        one.team,
        one.owner,
        one.created,
        {"spec": {"tpu": one.tpu, "slices": one.slices}},
        state=one.state,
        message=one.message,
        ended=one.ended,
        attempts=attempts,
    )


def show(place: UnmanagedJobs, one: Unmanaged, as_json: bool) -> None:
    from tpukit.jobs import report

    hosts = place.unmanaged_hosts(one)
    job = as_job(place.name, one)
    if as_json:
        context.print_json(report.job_json(job) | {"hosts": [report.host_json(host) for host in hosts]})
        return
    from rich.text import Text

    from tpukit.jobs.report import tables

    console = tables.console()
    console.print(Text.assemble((one.id, "bold"), " ", (one.state, tables.STYLES[one.state]), f"  {one.message}"))
    whose = (
        f"adopted by {one.owner}"
        if one.adopted
        else f"sent by {one.owner or 'others'}: read-only; `tpu job adopt {one.id}` takes it over"
    )
    console.print(Text.assemble(("whose    ", "dim"), whose), soft_wrap=True)
    console.print(Text.assemble(("tpu      ", "dim"), report.shape(job)))
    if hosts:
        console.print()
        console.print(tables.hosts(hosts))


def stop(place: UnmanagedJobs, one: Unmanaged) -> None:
    place.stop_unmanaged(one)
    click.echo(f"{one.id} is being removed", err=True)


def rerun(place: UnmanagedJobs, one: Unmanaged) -> None:
    place.rerun_unmanaged(one)
    click.echo(one.id)


def adopt(place: UnmanagedJobs, one: Unmanaged) -> None:
    place.adopt(one, context.owner())
    click.echo(f"{one.id} is yours: `tpu job stop {one.id}` stops it", err=True)


def _places(only: str, used: set[str]) -> Iterator[UnmanagedJobs]:
    """Yield the places that support unmanaged jobs: `only`, or else those in use or set up on this machine."""
    for name in context.places():
        worth = name == only if only else name in used or by_name.is_set_up(name)
        if worth and by_name.has_unmanaged(name):
            yield cast("UnmanagedJobs", context.places()[name])


def _ask(place: UnmanagedJobs, jobs: Sequence[Job]) -> Sequence[Unmanaged]:
    try:
        return place.unmanaged(_teams([job for job in jobs if job.place == place.name]))
    except TpukitError as error:
        context.say(place.name, f"the cluster was not reachable: {error}")
        return ()


def _teams(jobs: Sequence[Job]) -> list[str]:
    """Return the teams to query, for users who may not list all."""
    from tpukit.jobs.spec import settings

    return sorted({settings.load().team, *(job.team for job in jobs)})


def _is_ours(one: Unmanaged, jobs: Sequence[Job], names: frozenset[str]) -> bool:
    """Return True if the store has this job: another team may use the same name."""
    name = one.id.partition("/")[2]
    if name not in names:
        return False
    try:
        job = next((job for job in jobs if job.id == name), None) or context.get(name)
    except TpukitError:  # listed separately as unreadable
        return True
    return job.team == one.team
