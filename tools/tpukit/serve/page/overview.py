"""The view Now: slices and their holders, running and waiting jobs, and failures of the last day."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tpukit.fleet.records import WORKERS
from tpukit.goodput import budgets, rates
from tpukit.jobs import report
from tpukit.jobs.reasons import State
from tpukit.jobs.records import ACTIVE, Job
from tpukit.kernel.store import everything
from tpukit.serve.page.site import SHARED_SECONDS, SUMS_SECONDS, Site
from tpukit.sharing.inventory import VMS

DAY_SECONDS = 86_400.0
SLICES_MOST = 400
"""Limit of slices on the map; the rest is only counted."""


def context(site: Site) -> dict[str, Any]:
    now = site.clock.now()
    active = site.active()
    wrong = [job for job in site.newest() if job.state is State.FAILED and now - job.ended < DAY_SECONDS]
    slices = site.shared("slices", SHARED_SECONDS, lambda: _slices(site, active))
    return {
        "slices": slices[:SLICES_MOST],
        "more_slices": max(0, len(slices) - SLICES_MOST),
        "chips": sum(one["chips"] for one in slices),
        "usd_per_hour": _sum([one["usd"] for one in slices]),
        "runs": [row(job, now) for job in active if job.state is State.RUNNING],
        "waits": [row(job, now) for job in active if job.state is not State.RUNNING],
        "wrong": [row(job, now) for job in wrong],
        "spent": site.shared("budgets", SUMS_SECONDS, lambda: spendings(site)),
        "driven": site.is_driven,
        "now": now,
    }


def row(job: Job, now: float) -> dict[str, Any]:
    """Return the columns of a job in lists."""
    return {
        "id": job.id,
        "state": str(job.state),
        "team": job.team,
        "owner": job.owner,
        "place": job.place,
        "tpu": report.shape(job),
        "attempt": job.attempt.number if job.attempt else None,
        "age": report.elapsed(job.created, job.ended or now),
        "message": job.message,
        "reason": str(job.reason or ""),
        "tags": " ".join(job.tags),
    }


def spendings(site: Site) -> list[dict[str, Any]]:
    """Return the budgets of teams with the amounts spent."""
    now = site.clock.now()
    if not everything(site.store, budgets.BUDGETS):
        return []
    jobs = site.recent(now - budgets.WINDOW_SECONDS)
    return [
        {
            "team": one.budget.team,
            "usd": one.usd,
            "limit": one.budget.usd,
            "over": one.is_over,
            "hold": one.budget.hold,
            "words": one.words,
        }
        for one in budgets.spending(site.store, jobs, now)
    ]


def _slices(site: Site, active: Sequence[Job]) -> list[dict[str, Any]]:
    """Return the slices of jobs, users and fleets, with hosts, chips and cost per hour."""
    found = [one for job in active if job.attempts for one in _of_job(job)]
    holders = {job.id for job in active}
    for vm in (entry.value for entry in everything(site.store, VMS)):
        held = vm.job in holders
        found.append(
            {
                "name": vm.name,
                "kind": "TPU VM",
                "tpu": vm.type,
                "hosts": 0,
                "chips": 0,
                "holder": vm.job if held else "",
                "link": f"/job/{vm.job}" if held else "/vms",
                "state": "running" if held else "idle",
                "since": vm.since,
                "usd": None,
            }
        )
    for worker in (entry.value for entry in everything(site.store, WORKERS, states=("active",))):
        found.append(
            {
                "name": worker.tpu,
                "kind": "fleet",
                "tpu": worker.tpu_type,
                "hosts": 0,
                "chips": 0,
                "holder": worker.fleet,
                "link": "/fleets",
                "state": "running" if worker.tpu_state == "READY" else "scheduled",
                "since": worker.since,
                "usd": None,
            }
        )
    return found


def _of_job(job: Job) -> list[dict[str, Any]]:
    slice_ = job.plan.get("slice")
    slices = report.slice_count(job)
    if not isinstance(slice_, dict) or slices is None or job.state not in ACTIVE:
        return []
    usd = rates.of_job(job).usd
    attempt = job.attempt
    return [
        {
            "name": f"{job.id} slice {index}",
            "kind": job.place,
            "tpu": str(slice_.get("name", "?")),
            "hosts": _count(slice_.get("hosts")),
            "chips": _count(slice_.get("chips")),
            "holder": job.id,
            "link": f"/job/{job.id}",
            "state": str(job.state),
            "since": attempt.started or attempt.marks.since if attempt else 0.0,
            "usd": None if usd is None else usd / slices,
        }
        for index in range(min(slices, SLICES_MOST))
    ]


def _count(number: object) -> int:
    return number if isinstance(number, int) and 0 < number < 10**6 else 0


def _sum(amounts: Sequence[float | None]) -> float:
    return sum(amount for amount in amounts if amount is not None)
