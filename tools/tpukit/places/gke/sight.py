"""What a cluster says, looked up no more often than it can be of use."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

from tpukit.clock import Clock
from tpukit.errors import Denied, NotFound
from tpukit.kube import Cluster, Docs
from tpukit.places.gke import look
from tpukit.places.gke.clusters import Clusters
from tpukit.places.gke.look import Doc, Look
from tpukit.places.gke.waiting import Surroundings
from tpukit.plan import Plan
from tpukit.teams.waiting import Queues

T = TypeVar("T")

LOOK_SECONDS = 0.5
"""A look this old serves for all jobs of a namespace that are asked about in one round."""
AROUND_SECONDS = 3.0
"""The same for what is asked only to say why a job waits."""


class Sight:
    def __init__(self, clusters: Clusters, clock: Clock) -> None:
        self._clusters = clusters
        self._clock = clock
        self._looks: dict[tuple[str, str], Look] = {}
        self._around: dict[tuple[str, str], tuple[float, Surroundings]] = {}

    def cluster(self, plan: Plan) -> Cluster:
        return self._clusters.open(plan.cluster or self._clusters.current())

    def look(self, plan: Plan, *, fresh: bool = False) -> Look:
        key = _key(plan)
        known, now = self._looks.get(key), self._clock.now()
        if fresh or known is None or not 0 <= now - known.at < LOOK_SECONDS:
            known = self._looks[key] = look.take(self.cluster(plan), plan.team, now)
        return known

    def forget(self, plan: Plan) -> None:
        """It has just been changed."""
        self._looks.pop(_key(plan), None)

    def around(self, plan: Plan) -> Surroundings:
        key = _key(plan)
        known, now = self._around.get(key), self._clock.now()
        if known is None or not 0 <= now - known[0] < AROUND_SECONDS:
            known = self._around[key] = now, _surroundings(self.cluster(plan), plan.team)
        return known[1]

    def nodes(self, plan: Plan, pods: Sequence[Doc]) -> dict[str, Doc]:
        """Nodes of hosts that are being taken away: their labels tell maintenance from preemption."""
        if not any(look.true_condition(pod, "DisruptionTarget") for pod in pods):
            return {}
        found = allowed(self.cluster(plan), "Node") or []
        return {one["metadata"]["name"]: one for one in found}


def _surroundings(cluster: Cluster, team: str) -> Surroundings:
    everywhere = [allowed(cluster, kind) for kind in ("ClusterQueue", "ResourceFlavor")]
    workloads = allowed(cluster, "Workload")
    if workloads is None:
        workloads = cluster.list("Workload", team)
    local_queues = cluster.list("LocalQueue", team)
    queues = None
    if everywhere[0] is not None and everywhere[1] is not None:
        queues = Queues(workloads, local_queues, everywhere[0], everywhere[1])
    return Surroundings(queues, allowed(cluster, "Node"), allowed(cluster, "Event", team) or [])


def allowed(cluster: Cluster, kind: str, namespace: str = "") -> Docs | None:
    """All of a kind; None for those who may not see it, and where there is no such kind."""
    try:
        return cluster.list(kind, namespace)
    except (Denied, NotFound):
        return None


def _key(plan: Plan) -> tuple[str, str]:
    return plan.cluster.context if plan.cluster else "", plan.team
