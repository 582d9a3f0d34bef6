"""The view Now: slices and their holders, running and waiting jobs, and failures of the last day."""

from __future__ import annotations

from typing import Any

from tpukit.goodput import budgets
from tpukit.jobs import report
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Job
from tpukit.kernel.store import everything
from tpukit.serve.page import slices
from tpukit.serve.page.site import SHARED_SECONDS, SUMS_SECONDS, Site

DAY_SECONDS = 86_400.0


def context(site: Site) -> dict[str, Any]:
    now = site.clock.now()
    active = site.active()
    wrong = [job for job in site.newest() if job.state is State.FAILED and now - job.ended < DAY_SECONDS]
    held = site.shared("slices", SHARED_SECONDS, lambda: slices.of_everything(site.store, active))
    starts = site.starts()
    idle = [one for one in held if one.state == "idle"]
    return {
        "slices": held[: slices.SLICES_MOST],
        "more_slices": max(0, len(held) - slices.SLICES_MOST),
        "chips": sum(one.chips for one in held),
        "usd_per_hour": sum(one.usd or 0.0 for one in held),
        "unpriced": sum(1 for one in held if one.usd is None),
        "idle": len(idle),
        "idle_usd": sum(one.usd or 0.0 for one in idle),
        "runs": [row(job, now) for job in active if job.state is State.RUNNING],
        "waits": [
            row(job, now) | {"starts": starts.get(f"{job.team}/{job.id}")}
            for job in active
            if job.state is not State.RUNNING
        ],
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
