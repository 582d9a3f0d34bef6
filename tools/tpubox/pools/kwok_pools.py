"""Pools whose hosts kwok simulates: nothing runs on them, so that thousands fit.

A pool is simulated if its nodes have the label `tpukit.dev/simulated=kwok`, set like any other when the pool is
created. Its pods are running as soon as they are placed, and end when their `sleep` would.
"""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from tpubox.kubelet import registered_pools
from tpubox.kubelet.api_server import Api
from tpubox.kubelet.draining import PATIENCE_SECONDS, Drain
from tpubox.kubelet.registered_pools import Pool
from tpubox.kubelet.simulated_hosts import LABEL
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NotFound
from tpukit.kube import Cluster, Doc

_AT_ONCE = 4
_LOOK_SECONDS = 0.3


def is_simulated(pool: Pool) -> bool:
    return pool.labels.get(LABEL[0]) == LABEL[1]


def add(cluster: Cluster, pool: Pool) -> None:
    """Create the nodes of the pool. Idempotent."""
    documents = [_node(pool, name) for name in pool.nodes]

    def create(document: Doc) -> None:
        with suppress(Conflict):
            cluster.create(document)

    if len(documents) == 1:
        create(documents[0])
        return
    with ThreadPoolExecutor(_AT_ONCE) as threads:
        list(threads.map(create, documents))


def remove(
    cluster: Api, pool: Pool, clock: Clock, patience: float = PATIENCE_SECONDS, *, budgets: bool = False
) -> None:
    """Drain the pool as GKE does, then delete its nodes with all their pods, which no kubelet would clean up."""
    for name in pool.nodes:
        with suppress(NotFound):
            cluster.patch("Node", name, {"spec": {"unschedulable": True}})
    drain, deadline = Drain(cluster, clock), clock.now() + patience
    while not drain.go_on(_pods(cluster, pool), deadline, budgets=budgets):
        clock.sleep(_LOOK_SECONDS)
    for pod in _pods(cluster, pool):
        cluster.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)
    for name in pool.nodes:
        cluster.delete("Node", name)


def _pods(cluster: Api, pool: Pool) -> list[Doc]:
    return [pod for name in pool.nodes for pod in cluster.list("Pod", fields=f"spec.nodeName={name}")]


def _node(pool: Pool, name: str) -> Doc:
    document = registered_pools.node_document(pool, name)
    document["metadata"]["annotations"] = {"kwok.x-k8s.io/node": "fake"}
    status = {"capacity": registered_pools.capacity(pool), "allocatable": registered_pools.allocatable(pool)}
    return {**document, "status": status}
