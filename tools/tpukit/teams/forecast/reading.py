"""The queues of a cluster as a `Line`: from Kueue's objects, with what is known of each job. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from tpukit.teams import naming, shares, waiting, workloads
from tpukit.teams.forecast.durations import Like
from tpukit.teams.forecast.line import Entry, Key, Line, Queue
from tpukit.teams.waiting import Queues

Doc = Mapping[str, Any]
_STOPPED = ("Hold", "HoldAndDrain")


@dataclass(frozen=True, slots=True)
class Seen:
    """A job in the queues."""

    entry: Entry
    like: Like
    admitted: float = 0.0  # 0: it waits
    why_not: str = ""  # why it cannot be predicted


@dataclass(frozen=True, slots=True)
class Picture:
    """The queues now."""

    queues: Mapping[str, Queue]
    jobs: Mapping[str, Seen]  # by team/job

    def line(self) -> Line:
        made = Line(self.queues)
        for one in self.jobs.values():
            if one.why_not:
                continue
            if one.admitted:
                made.run(one.entry, one.admitted)
            else:
                made.wait(one.entry)
        return made


def picture(queues: Queues) -> Picture:
    found = {one.name: one for one in map(queue, queues.cluster_queues)}
    seen = {}
    for workload in queues.workloads:
        if not workloads.ended(workload):
            one = seen_of(workload, queues)
            seen[one.entry.id] = one
    return Picture(found, seen)


def queue(cluster_queue: Doc) -> Queue:
    spec = cluster_queue["spec"]
    known = shares.shares(cluster_queue)
    preemption = spec.get("preemption", {})
    active = [one for one in cluster_queue.get("status", {}).get("conditions", []) if one["type"] == "Active"]
    return Queue(
        str(cluster_queue["metadata"]["name"]),
        shares.cohort(cluster_queue),
        {key: float(share.own) for key, share in known.items()},
        {key: math.inf if share.most is None else float(share.most) for key, share in known.items()},
        str(preemption.get("withinClusterQueue", "Never")),
        str(preemption.get("reclaimWithinCohort", "Never")),
        strict=spec.get("queueingStrategy") == "StrictFIFO",
        stopped=spec.get("stopPolicy") in _STOPPED or any(one["status"] != "True" for one in active),
    )


def seen_of(workload: Doc, queues: Queues) -> Seen:
    """Return a job as the simulation needs it. Its order includes evictions by checks, as Kueue's does."""
    name = f"{workloads.team(workload)}/{workloads.job(workload)}"
    minus, since, _uid = workloads.order(workload)
    like = Like(workloads.team(workload), workloads.job(workload), naming.slices_of(workload))
    reserved = workloads.condition(workload, "QuotaReserved")
    if reserved:
        there = str(workload["status"]["admission"]["clusterQueue"])
        need = {key: float(number) for key, number in workloads.held(workload).items()}
        entry = Entry(name, there, need, -minus, seconds(since))
        return Seen(entry, like, seconds(str(reserved["lastTransitionTime"])))
    cluster_queue = queues.cluster_queue(workload)
    if cluster_queue is None:
        return Seen(Entry(name, "", {}, -minus, seconds(since)), like, why_not=waiting.why(workload, queues))
    need, missing = needs(workload, cluster_queue, queues)
    why_not = missing or waiting.never(workload, queues)
    if workload["spec"].get("active") is False:
        why_not = "its Workload is inactive"
    return Seen(
        Entry(name, str(cluster_queue["metadata"]["name"]), need, -minus, seconds(since)), like, why_not=why_not
    )


def needs(workload: Doc, cluster_queue: Doc, queues: Queues) -> tuple[dict[Key, float], str]:
    """Return what a job takes of each flavor, and why it gets none of one of them."""
    total: dict[Key, Decimal] = {}
    for ask in workloads.asks(workload):
        flavor = waiting.flavor_of(ask, cluster_queue, queues.flavors)
        if not flavor:
            return {}, f"its queue has no {naming.nodes(ask.selector)}"
        for resource, number in ask.requests.items():
            total[flavor, resource] = total.get((flavor, resource), Decimal()) + number
    return {key: float(number) for key, number in total.items()}, ""


def seconds(text: str) -> float:
    """Return a Kubernetes time as seconds since the epoch; 0 if it is not one."""
    try:
        return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()
    except ValueError:
        return 0.0
