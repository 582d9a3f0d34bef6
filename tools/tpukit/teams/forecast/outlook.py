"""The queues of a cluster with the history of jobs: all that a prediction needs. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Job
from tpukit.jobs.render.kueue import PRIORITIES
from tpukit.jobs.spec import durations as spec_durations
from tpukit.teams import workloads
from tpukit.teams.forecast import durations, reading
from tpukit.teams.forecast.durations import Durations
from tpukit.teams.forecast.line import Entry
from tpukit.teams.forecast.predict import SAMPLES, Arrivals, Prediction, predict
from tpukit.teams.forecast.reading import Picture
from tpukit.teams.waiting import Queues

WINDOW_SECONDS = 7 * 86_400.0
"""Window of the past whose jobs are a sample of those to come."""
HISTORY_SECONDS = 60 * 86_400.0
"""Age of the oldest jobs whose durations count."""


@dataclass(frozen=True, slots=True)
class Outlook:
    picture: Picture
    durations: Durations
    arrivals: Arrivals
    limits: Mapping[str, float]
    elapsed: Mapping[str, float]
    now: float

    def predict(self, picture: Picture | None = None, samples: int = SAMPLES) -> Prediction:
        return predict(
            picture or self.picture,
            self.durations,
            self.now,
            arrivals=self.arrivals,
            limits=self.limits,
            elapsed=self.elapsed,
            samples=samples,
        )


def outlook(queues: Queues, jobs: Iterable[Job], now: float) -> Outlook:
    """Return the outlook of the queues, with the records of active and ended jobs that went through queues."""
    listed = [job for job in jobs if now - (job.ended or now) < HISTORY_SECONDS]
    active = [job for job in listed if not job.state.ended]
    picture = reading.picture(queues)
    likes = {_name(job): durations.like(job) for job in active}
    known = {name: replace(seen, like=likes.get(name, seen.like)) for name, seen in picture.jobs.items()}
    return Outlook(
        Picture(picture.queues, known),
        Durations(durations.of_jobs(listed, now)),
        _arrivals(queues, listed, now),
        {_name(job): limit for job in active if (limit := _limit(job))},
        {_name(job): durations.held(job, now) for job in active},
        now,
    )


def with_plan(queues: Queues, plan: Plan, now: float) -> Queues:
    """Return the queues as they would be after a job of this plan is sent."""
    asked = workloads.of_plan(plan)
    values = {one.name: one.value for one in PRIORITIES}
    created = datetime.fromtimestamp(now, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    metadata = {**asked["metadata"], "creationTimestamp": created, "uid": ""}
    spec = {**asked["spec"], "priority": values.get(plan.spec.priority or "", 0)}
    return replace(queues, workloads=[*queues.workloads, {"metadata": metadata, "spec": spec}], _lines={})


def name_of(plan: Plan) -> str:
    return f"{plan.team}/{plan.id}"


def _name(job: Job) -> str:
    return f"{job.team}/{job.id}"


def _limit(job: Job) -> float:
    """Return the longest time that a job may hold its slices; 0: any."""
    try:
        return float(spec_durations.parse(str(job.plan["spec"]["max"]["runtime"])))
    except (KeyError, TypeError, ValueError):
        return 0.0


def _arrivals(queues: Queues, jobs: Iterable[Job], now: float) -> Arrivals:
    locals_: dict[str, str] = {
        one["metadata"]["namespace"]: str(one["spec"].get("clusterQueue", "")) for one in queues.local_queues
    }
    recent = [job for job in jobs if 0 <= now - job.created < WINDOW_SECONDS]
    found = [
        (Entry(_name(job), locals_[job.team], {(flavor, workloads.CHIPS): chips}, priority), durations.like(job))
        for job in recent
        if job.team in locals_
        for flavor, chips, priority in _asked(job.plan)
    ]
    oldest = min((job.created for job in recent), default=now)
    return Arrivals(found, max(now - oldest, 3600.0))


def _asked(plan: Mapping[str, Any]) -> list[tuple[str, float, int]]:
    """Return the flavor, chips and priority of a job; none if its plan cannot be read."""
    kind = durations.kind_of(plan)
    if kind is None:
        return []
    values = {one.name: one.value for one in PRIORITIES}
    count = plan["spec"].get("slices", 1)
    return [(kind.flavor, float(kind.shape.chips * count), values.get(plan["spec"].get("priority") or "", 0))]
