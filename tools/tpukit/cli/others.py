"""Jobs that are on a cluster and not in this store: how `tpu job` shows them, and what it may do to them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from tpukit.errors import NotFound, TpukitError
from tpukit.places.gke import others
from tpukit.places.gke.others import Summary
from tpukit.reasons import State
from tpukit.store import Attempt, Job

if TYPE_CHECKING:
    from tpukit.kube import Cluster


def cluster() -> Cluster:
    from tpukit.cli import here

    clusters = here.gke().clusters
    return clusters.open(clusters.current())


def teams(jobs: Sequence[Job]) -> list[str]:
    """Where to look, for those who may not look everywhere."""
    from tpukit.spec import settings

    return sorted({settings.load().team, *(job.team for job in jobs if job.place == "gke")})


def with_cluster(jobs: Sequence[Job]) -> tuple[list[Job], list[Job]]:
    """This store's jobs with their state on the cluster, and those of others."""
    from tpukit.cli import here

    try:
        found = others.summaries(cluster(), teams(jobs))
        server = here.gke().clusters.current().server
    except TpukitError as error:
        here.say("gke", f"the cluster was not asked: {error}")
        return list(jobs), []
    by_id = {(one.team, one.name): one for one in found}
    mine = [_seen(job, by_id.get((job.team, job.id)), server) for job in jobs]
    known = {(job.team, job.id) for job in jobs}
    return mine, [as_job(one) for one in found if (one.team, one.name) not in known]


def find(name: str, missing: NotFound) -> Summary:
    """A JobSet that this store does not know; where there is no cluster to ask, the store's own answer."""
    try:
        return others.find(cluster(), name, teams(()))
    except TpukitError:
        raise missing from None


def as_job(one: Summary) -> Job:
    """As a record, for tables and JSON."""
    spec = {"tpu": one.tpu, "slices": one.slices}
    attempts = tuple(Attempt(number, stage=number, origin=0, state=one.state) for number in range(one.attempt + 1))
    owner = one.adopted_by or ("another tpukit" if one.sender else one.by)
    return Job(
        one.id, "gke", one.team, owner, one.created, {"spec": spec}, state=one.state, message=one.message,
        ended=one.ended, attempts=attempts,
    )  # fmt: skip


def show(one: Summary, as_json: bool) -> None:
    from tpukit import report
    from tpukit.cli import here

    hosts = others.hosts(cluster(), one)
    job = as_job(one)
    if as_json:
        here.print_json(report.job_json(job) | {"hosts": [report.host_json(host) for host in hosts]})
        return
    from rich.text import Text

    from tpukit.report import tables

    console = tables.console()
    console.print(Text.assemble((one.id, "bold"), " ", (one.state, tables.STYLES[one.state]), f"  {one.message}"))
    whose = (
        f"adopted by {one.adopted_by}"
        if one.adopted_by
        else f"sent by {job.owner or 'others'}: read-only, `tpu job adopt {one.id}` takes it over"
    )
    console.print(Text.assemble(("whose    ", "dim"), whose), soft_wrap=True)
    console.print(Text.assemble(("tpu      ", "dim"), report.shape(job)))
    if hosts:
        console.print()
        console.print(tables.hosts(hosts))


def logs(one: Summary, follow: bool) -> None:
    for line in others.logs(cluster(), one, follow=follow):
        click.echo(f"{line.host.removeprefix(one.name + '-')}: {line.text}")


def stop(one: Summary) -> None:
    others.stop(cluster(), one)
    click.echo(f"{one.id} is being removed", err=True)


def again(one: Summary) -> None:
    others.again(cluster(), one)
    click.echo(one.id)


def _seen(job: Job, one: Summary | None, server: str) -> Job:
    """The record of a job that nobody drives just now may be behind what the cluster has."""
    placed = job.plan.get("cluster") or {}
    if job.place != "gke" or job.state.ended or one is None or placed.get("server") != server:
        return job
    if one.state is State.RUNNING:  # let in by the queue: whether its hosts are up, the record knows better
        return job
    return replace(job, state=one.state, message=one.message, ended=one.ended)
