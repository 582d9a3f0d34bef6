"""What GKE's cluster autoscaler does: pods that fit nowhere make a pool grow, and nodes that nobody uses go again.

Only pools whose autoscaling is on. A slice of several hosts comes and goes as a whole, one for each Job that waits;
other pools grow by a node at a time. What a pod asks of a node is its nodeSelector, its tolerations and its requests;
one with required node affinity is left alone.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from decimal import Decimal
from functools import cached_property
from typing import Any

from tpukit.errors import TpukitError
from tpukit.kube import Cluster
from tpukit.sandbox.agent import pools as agent_pools
from tpukit.sandbox.agent.env import quantity
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.emulator_settings import Pool
from tpukit.sandbox.google.pool_nodes import described
from tpukit.sandbox.google.refusal import Refused
from tpukit.sandbox.google.updates import scale
from tpukit.sandbox.pool_adapter import of_google

TICK_SECONDS = 2.0
IDLE_SECONDS = 600.0
_POOL = "cloud.google.com/gke-nodepool"
_log = logging.getLogger(__name__)

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scalable:
    """A pool, and a node of it as it is or would be."""

    full: str  # its name in Google's APIs
    name: str
    labels: Mapping[str, str]
    taints: Sequence[Object]
    capacity: Mapping[str, str]
    size: int  # nodes in each zone
    least: int
    most: int
    all_or_none: bool  # all of its nodes or none


def grown(pools: Iterable[Scalable], pods: Iterable[Object]) -> dict[str, int]:
    """New sizes of pools, by their full names, so that these pods find a place."""
    sizes: dict[str, int] = {}
    open_pools = [pool for pool in pools if pool.size < pool.most]
    # The pods of one Job belong on one slice: any of them speaks for all.
    for pod in {_owner(pod): pod for pod in pods}.values():
        for pool in open_pools:
            if pool.full not in sizes and fits(pod, pool):
                sizes[pool.full] = pool.most if pool.all_or_none else pool.size + 1
                break
    return sizes


def fits(pod: Object, pool: Scalable) -> bool:
    spec = pod["spec"]
    if spec.get("affinity", {}).get("nodeAffinity", {}).get("requiredDuringSchedulingIgnoredDuringExecution"):
        return False
    chosen = all(pool.labels.get(key) == value for key, value in spec.get("nodeSelector", {}).items())
    closed = [taint for taint in pool.taints if taint["effect"] != "PreferNoSchedule"]
    tolerated = all(any(_tolerates(one, taint) for one in spec.get("tolerations", [])) for taint in closed)
    return chosen and tolerated and all(
        amount <= quantity(pool.capacity.get(what, "0")) for what, amount in _requests(spec).items()
    )  # fmt: skip


def _tolerates(toleration: Object, taint: Object) -> bool:
    if toleration.get("effect", taint["effect"]) != taint["effect"]:
        return False
    if toleration.get("operator", "Equal") == "Exists":
        return bool(toleration.get("key", taint["key"]) == taint["key"])
    return (toleration.get("key"), toleration.get("value", "")) == (taint["key"], taint.get("value", ""))


def _requests(spec: Object) -> dict[str, Decimal]:
    found: dict[str, Decimal] = {}
    for container in spec["containers"]:
        resources = container.get("resources", {})
        for what, amount in {**resources.get("limits", {}), **resources.get("requests", {})}.items():
            found[what] = found.get(what, Decimal(0)) + quantity(str(amount))
    return found


def _owner(pod: Object) -> str:
    owners = [one["uid"] for one in pod["metadata"].get("ownerReferences", []) if one.get("controller")]
    return str(owners[0] if owners else pod["metadata"]["uid"])


class Autoscaler:
    def __init__(self, cloud: Cloud, connect: Callable[[], Cluster]) -> None:
        """`connect` is called when there is a pool to be scaled: most sandboxes have none."""
        self._cloud = cloud
        self._connect = connect
        self._idle_since: dict[str, float] = {}

    def run(self, over: threading.Event) -> None:
        while not over.wait(TICK_SECONDS):
            try:
                self.tick()
            except (TpukitError, Refused) as error:
                _log.warning("autoscaler: %s", error)
            except Exception:  # Google's APIs are served on
                _log.exception("autoscaler")

    def tick(self) -> None:
        pools = list(self._pools())
        if not pools:
            return
        waiting = [pod for pod in self._cluster.list("Pod", fields="status.phase=Pending") if _unschedulable(pod)]
        for full, size in {**self._idle(pools), **grown(pools, waiting)}.items():
            _log.info("autoscaler: %s to %d nodes", full, size)
            scale(self._cloud, full, size)

    @cached_property
    def _cluster(self) -> Cluster:
        return self._connect()

    def _pools(self) -> Iterable[Scalable]:
        busy = {doc["target"] for doc in self._cloud.state.all("pending").values()}
        for full, doc in self._cloud.state.all("pool").items():
            scaling = doc.get("autoscaling", {})
            if not scaling.get("enabled") or doc["status"] != "RUNNING" or full in busy:
                continue
            zones = len(doc["locations"])
            pool = of_google(_with_nodes(described(self._cloud, full), doc["locations"][0]))
            document = agent_pools.node_document(pool, next(iter(pool.nodes)))
            yield Scalable(
                full,
                pool.name,
                labels=document["metadata"]["labels"],
                taints=document["spec"].get("taints", []),
                capacity=agent_pools.capacity(pool),
                size=doc["_size"],
                least=scaling.get("minNodeCount") or scaling.get("totalMinNodeCount", 0) // zones,
                most=scaling.get("maxNodeCount") or scaling.get("totalMaxNodeCount", 0) // zones,
                all_or_none=doc["_several_hosts"],
            )

    def _idle(self, pools: Sequence[Scalable]) -> dict[str, int]:
        """Pools that nobody used for long enough, and the least that they may have."""
        large = [pool for pool in pools if pool.size > pool.least]
        if not large:
            return {}
        nodes = {node["metadata"]["name"]: node["metadata"]["labels"].get(_POOL) for node in self._cluster.list("Node")}
        pods = self._cluster.list("Pod", fields="status.phase!=Succeeded,status.phase!=Failed")
        used = {nodes.get(pod["spec"].get("nodeName", "")) for pod in pods}
        now = self._cloud.clock.now()
        self._idle_since = {pool.full: self._idle_since.get(pool.full, now) for pool in large if pool.name not in used}
        return {pool.full: pool.least for pool in large if now - self._idle_since.get(pool.full, now) >= IDLE_SECONDS}


def _with_nodes(pool: Pool, zone: str) -> Pool:
    """The pool; where it has no nodes, with as few as it could have."""
    hosts = pool.slice.hosts if pool.slice else 1
    return pool if pool.nodes else replace(pool, nodes={f"node-{number}": zone for number in range(hosts)})


def _unschedulable(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)
