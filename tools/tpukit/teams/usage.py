"""Usage of ClusterQueues, counted from the jobs that hold it.

Kueue updates a queue's status some time after it admitted or evicted a job, while a Workload is up to date. With access
to the Workloads of all teams, usage is current, and consistent between a queue and its jobs.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from tpukit.core.quantities import quantity
from tpukit.teams import shares, workloads

Doc = Mapping[str, Any]


def counted(cluster_queues: Iterable[Doc], every_workload: Sequence[Doc]) -> list[dict[str, Any]]:
    """Return the queues with a status computed from these Workloads, which must be complete."""
    held: dict[tuple[str, shares.Key], Decimal] = {}
    for one in every_workload:
        if workloads.condition(one, "QuotaReserved") and not workloads.ended(one):
            queue = str(one["status"]["admission"]["clusterQueue"])
            for key, number in workloads.held(one).items():
                held[queue, key] = held.get((queue, key), Decimal()) + number
    return [_with_status(queue, held) for queue in cluster_queues]


def _with_status(queue: Doc, held: Mapping[tuple[str, shares.Key], Decimal]) -> dict[str, Any]:
    flavors: dict[str, list[Doc]] = {}
    for (flavor, resource), share in shares.shares(queue).items():
        used = held.get((queue["metadata"]["name"], (flavor, resource)), Decimal())
        borrowed = max(Decimal(), used - share.own) if shares.cohort(queue) else Decimal()
        amounts = {"name": resource, "total": quantity(used), "borrowed": quantity(borrowed)}
        flavors.setdefault(flavor, []).append(amounts)
    reserved = [{"name": name, "resources": resources} for name, resources in flavors.items()]
    return {**queue, "status": {**queue.get("status", {}), "flavorsReservation": reserved}}
