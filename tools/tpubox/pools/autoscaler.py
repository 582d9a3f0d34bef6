"""An emulation of GKE's cluster autoscaler: unschedulable pods grow a pool, and idle nodes are removed.

Only pools with autoscaling are considered. A slice of several hosts is added and removed as a whole, one for each
waiting Job; other pools grow by one node at a time. A pod's requirements are its nodeSelector, its required node
affinity, its tolerations and its requests. Events on pods report scale-ups and their outcome.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from tpubox.google.gke.pool_nodes import described
from tpubox.google.gke.pool_updates import scale
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.settings import Pool
from tpubox.kubelet import registered_pools as agent_pools
from tpubox.pools import scale_events
from tpubox.pools.idle_nodes import IdleNodes, Shrink
from tpubox.pools.pool_adapter import of_google
from tpubox.pools.pool_fit import Scalable, fits, misfit
from tpubox.pools.provisioning_requests import ProvisioningRequests
from tpubox.pools.scale_events import GCE_QUOTA_EXCEEDED, GCE_STOCKOUT, INTERNAL, Recorder
from tpukit.core.errors import TpukitError
from tpukit.kube import Cluster

TICK_SECONDS = 2.0
BACKOFF_SECONDS, LONGEST_BACKOFF = 300.0, 1800.0
"""Backoff of a pool that could not grow: doubled each time, as in the open-source autoscaler.

See https://github.com/kubernetes/autoscaler, flags initial- and max-node-group-backoff-duration. The emulator's
`--seconds SCALE_UP_BACKOFF=…` changes the first one.
"""
BACKOFF_FORGOTTEN = 3 * 3600.0
_log = logging.getLogger(__name__)

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Backoff:
    """The end of a pool's backoff, and its duration."""

    until: float = 0.0
    seconds: float = 0.0

    def longer(self, now: float, first: float) -> Backoff:
        again = self.seconds and now < self.until + BACKOFF_FORGOTTEN
        seconds = min(2 * self.seconds, max(LONGEST_BACKOFF, first)) if again else first
        return Backoff(now + seconds, seconds)


def grown(pools: Iterable[Scalable], pods: Iterable[Object]) -> dict[str, int]:
    """Return the new sizes of pools, by their full names, that make room for these pods."""
    by_name = {pool.full: pool for pool in pools}
    return {full: by_name[full].next_size for full in chosen(by_name.values(), pods).values()}


def chosen(pools: Iterable[Scalable], pods: Iterable[Object]) -> dict[str, str]:
    """Return the pool that grows for each owner of pods. Any pod represents its Job, which belongs on one slice."""
    growing: dict[str, str] = {}
    open_pools = [pool for pool in pools if pool.size < pool.most and not pool.queued]
    for who, pod in {owner(pod): pod for pod in pods}.items():
        for pool in open_pools:
            if pool.full not in growing.values() and fits(pod, pool):
                growing[who] = pool.full
                break
    return growing


def owner(pod: Object) -> str:
    owners = [one["uid"] for one in pod["metadata"].get("ownerReferences", []) if one.get("controller")]
    return str(owners[0] if owners else pod["metadata"]["uid"])


class Autoscaler:
    def __init__(self, cloud: Cloud, connect: Callable[[], Cluster]) -> None:
        """Initialize; `connect` is called once there is a pool to scale, which most sandboxes do not have."""
        self._cloud = cloud
        self._connect = connect
        self._idle_nodes = IdleNodes()
        self._asked: dict[str, str] = {}  # pool that grows or grew, by owner of the pods that caused it
        self._backoff: dict[str, Backoff] = {}  # by pool

    def run(self, over: threading.Event) -> None:
        while not over.wait(TICK_SECONDS):
            try:
                self.tick()
            except (TpukitError, Refused) as error:
                _log.warning("autoscaler: %s", error)
            except Exception:  # keep serving Google's APIs  # noqa: BLE001
                _log.exception("autoscaler")

    def tick(self) -> None:
        pools = {pool.full: pool for pool in self._pools()}
        if not pools:
            return
        waiting = [pod for pod in self._cluster.list("Pod", fields="status.phase=Pending") if _unschedulable(pod)]
        self._asked = {who: full for who, full in self._asked.items() if who in {owner(pod) for pod in waiting}}
        self._requests.tick([pool for pool in pools.values() if pool.queued])
        for pool in pools.values():
            if pool.unfilled and not pool.queued:
                self._failed(pool, waiting, GCE_STOCKOUT if pool.unfilled == "GCE_STOCKOUT" else INTERNAL)
        now = self._cloud.clock.now()
        able = [pool for pool in pools.values() if now >= self._backoff.get(pool.full, Backoff()).until]
        left = [pod for pod in waiting if owner(pod) not in self._asked]
        growing = chosen(able, left)
        for full, shrink in self._idle(list(pools.values())).items():
            if full not in growing.values():
                _log.info("autoscaler: %s to %d nodes", full, shrink.size)
                scale(self._cloud, full, shrink.size, shrink.gone)
        for who, full in growing.items():
            self._grow(pools[full], who, waiting)
        for pod in left:
            if owner(pod) not in self._asked:
                self._events.record(pod, scale_events.not_triggered(self._reasons(pod, pools.values())))

    def _grow(self, pool: Scalable, who: str, waiting: Sequence[Object]) -> None:
        _log.info("autoscaler: %s to %d nodes", pool.full, pool.next_size)
        self._asked[who] = pool.full
        said = scale_events.triggered(pool.group, pool.size, pool.next_size, pool.most)
        for pod in self._waiting_for(pool, waiting):
            self._events.record(pod, said)
        try:
            scale(self._cloud, pool.full, pool.next_size)
        except Refused:
            self._failed(pool, waiting, GCE_QUOTA_EXCEEDED)

    def _failed(self, pool: Scalable, waiting: Sequence[Object], why: str) -> None:
        """Report the failure to the pods, and start the pool's backoff."""
        for pod in self._waiting_for(pool, waiting):
            self._events.record(pod, scale_events.failed(pool.zone, why))
        self._asked = {who: full for who, full in self._asked.items() if full != pool.full}
        first = self._cloud.settings.seconds.get("SCALE_UP_BACKOFF", BACKOFF_SECONDS)
        self._backoff[pool.full] = self._backoff.get(pool.full, Backoff()).longer(self._cloud.clock.now(), first)
        with self._cloud.state.transaction():
            if doc := self._cloud.state.get("pool", pool.full):
                self._cloud.state.put("pool", pool.full, {**doc, "_unfilled": ""})

    def _waiting_for(self, pool: Scalable, waiting: Sequence[Object]) -> list[Object]:
        """Return the pods that a pool grows for; all fitting ones if a killed emulator lost that record."""
        meant = [pod for pod in waiting if self._asked.get(owner(pod)) == pool.full]
        return meant or [pod for pod in waiting if fits(pod, pool)]

    def _reasons(self, pod: Object, pools: Iterable[Scalable]) -> list[str]:
        """Return the reason why each pool does not grow for a pod."""
        now = self._cloud.clock.now()
        said = []
        for pool in pools:
            if now < self._backoff.get(pool.full, Backoff()).until:
                said.append("in backoff after failed scale-up")
            else:
                full = "node group waits for a ProvisioningRequest" if pool.queued else "max node group size reached"
                said.append(misfit(pod, pool) or full)
        return said

    @cached_property
    def _requests(self) -> ProvisioningRequests:
        return ProvisioningRequests(self._cloud, self._cluster)

    @cached_property
    def _events(self) -> Recorder:
        return Recorder(self._cluster, self._cloud.clock)

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
                labels=document["metadata"]["labels"],
                taints=document["spec"].get("taints", []),
                allocatable=agent_pools.allocatable(pool),
                size=doc["_size"],
                least=scaling.get("minNodeCount") or scaling.get("totalMinNodeCount", 0) // zones,
                most=scaling.get("maxNodeCount") or scaling.get("totalMaxNodeCount", 0) // zones,
                all_or_none=doc["_several_hosts"],
                group=doc["instanceGroupUrls"][0].replace("/instanceGroupManagers/", "/instanceGroups/"),
                unfilled=doc.get("_unfilled", ""),
                queued=doc.get("queuedProvisioning", {}).get("enabled", False),
            )

    def _idle(self, pools: Sequence[Scalable]) -> dict[str, Shrink]:
        if not any(pool.size > pool.least for pool in pools):
            return {}
        nodes = {full: doc["_nodes"] for full, doc in self._cloud.state.all("pool").items()}
        pods = self._cluster.list("Pod", fields="status.phase!=Succeeded,status.phase!=Failed")
        return self._idle_nodes.shrinks(pools, nodes, pods, self._cloud.clock.now())


def _with_nodes(pool: Pool, zone: str) -> Pool:
    """Return the pool; one without nodes gets the smallest possible number."""
    hosts = pool.slice.hosts if pool.slice else 1
    return pool if pool.nodes else replace(pool, nodes={f"node-{number}": zone for number in range(hosts)})


def _unschedulable(pod: Object) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one.get("reason") == "Unschedulable" for one in conditions)
