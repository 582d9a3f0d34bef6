"""The views that are tables: all jobs, teams, fleets, the code queue, TPU VMs, the cluster."""

from __future__ import annotations

from collections import Counter
from typing import Any

from tpukit.code_queue.records import TPU_JOBS
from tpukit.fleet.records import WORKERS
from tpukit.goodput import accounts
from tpukit.goodput.causes import Cause
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.spec import settings
from tpukit.kernel.store import everything
from tpukit.serve.page import overview
from tpukit.serve.page.site import JOBS_A_PAGE, SHARED_SECONDS, SUMS_SECONDS, Site
from tpukit.sharing.inventory import VMS
from tpukit.teams.forecast import records

WINDOW_SECONDS = 30 * 86_400.0
QUEUED_MOST = 300
"""Limit of the jobs of a cluster's queues; the rest is only counted."""


def jobs(site: Site, state: str, after: str) -> dict[str, Any]:
    """Return a page of jobs, newest first."""
    states = (State(state),) if state in set(State) else ()
    page = site.store.list(JOBS, states=states, newest=True, after=after, limit=JOBS_A_PAGE)
    now = site.clock.now()
    return {
        "jobs": [overview.row(entry.value, now) for entry in page.entries],
        "broken": [{"id": one.key, "why": one.why} for one in page.broken] if not after else [],
        "next": page.next,
        "state": state if states else "",
        "states": [str(one) for one in State],
    }


def teams(site: Site) -> dict[str, Any]:
    """Return running and waiting jobs of each team, and what the last 30 days were spent on."""
    bills = site.shared("teams", SUMS_SECONDS, lambda: _teams(site))
    return {
        "teams": bills,
        "spent": site.shared("budgets", SUMS_SECONDS, lambda: overview.spendings(site)),
        "clusters": site.forecasts.views() if site.forecasts else (),
        "known": {f"{job.team}/{job.id}" for job in site.active()},
        "score": site.shared("score", SUMS_SECONDS, lambda: records.scored(site.store).words),
        "now": site.clock.now(),
        "most": QUEUED_MOST,
    }


def fleets(site: Site) -> dict[str, Any]:
    workers = site.shared(
        "workers", SHARED_SECONDS, lambda: [one.value for one in everything(site.store, WORKERS, limit=1000)]
    )
    found: dict[str, dict[str, Any]] = {}
    for worker in workers:
        fleet = found.setdefault(worker.fleet, {"name": worker.fleet, "workers": [], "samples": 0, "shards": 0})
        fleet["samples"] += worker.samples
        fleet["shards"] += worker.shards
        fleet["workers"].append(worker)
    return {"fleets": [found[name] for name in sorted(found)]}


def queue(site: Site) -> dict[str, Any]:
    """Return the newest jobs that applications sent, and their counts by state."""
    page = site.shared("queue", SHARED_SECONDS, lambda: site.store.list(TPU_JOBS, newest=True, limit=JOBS_A_PAGE))
    entries = page.entries
    return {
        "jobs": [{"id": entry.key, "job": entry.value} for entry in entries],
        "counts": sorted(Counter(str(entry.value.status) for entry in entries).items()),
        "more": bool(page.next),
    }


def vms(site: Site) -> dict[str, Any]:
    active = {job.id for job in site.active()}
    listed = site.shared("vms", SHARED_SECONDS, lambda: [one.value for one in everything(site.store, VMS)])
    return {"vms": [{"vm": vm, "held": vm.job in active} for vm in sorted(listed, key=lambda one: one.name)]}


def cluster(site: Site) -> dict[str, Any]:
    """Return the settings for jobs on clusters, and the clusters that have active jobs."""
    found = settings.load()
    clusters = Counter(_cluster_of(job) for job in site.active() if job.plan.get("cluster"))
    shown = ("project", "region", "zone", "context", "team", "artifacts")
    return {
        "settings": [(name, getattr(found, name)) for name in shown],
        "clusters": sorted(clusters.items()),
        "store": site.store.address,
    }


def _cluster_of(job: Job) -> str:
    cluster = job.plan.get("cluster")
    return str(cluster.get("context", "?")) if isinstance(cluster, dict) else "?"


def _teams(site: Site) -> list[dict[str, Any]]:
    now = site.clock.now()
    since = now - WINDOW_SECONDS
    every: dict[str, list[Job]] = {}
    for job in site.recent(since):
        every.setdefault(job.team, []).append(job)
    found = []
    for team, listed in sorted(every.items()):
        bill = accounts.together(accounts.of_job(job, now, since) for job in listed)
        wall = bill.goodput.wall or 1
        found.append(
            {
                "name": team,
                "runs": sum(1 for job in listed if job.state is State.RUNNING),
                "waits": sum(1 for job in listed if job.state in (State.PENDING, State.SCHEDULED)),
                "ended": sum(1 for job in listed if job.state.ended),
                "cost": bill.cost,
                "unpriced": bill.unpriced / 3_600_000,
                "useful": bill.useful_share,
                "causes": [
                    {"cause": cause, "share": bill.goodput.spent[cause] / wall, "usd": bill.usd.get(cause, 0.0)}
                    for cause in Cause
                    if cause in bill.goodput.spent
                ],
            }
        )
    return found
