"""Recovery of the nodes that kwok simulates, when kwok restarts after a kill.

A new kwok has another identity in the leases of its nodes: it would wait until those of the old one expire, more than a
minute in which all nodes are silent. It may also miss changes to a node's pods while it takes the node over: such a pod
waits forever, unless something about it changes.
"""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor

from tpukit.core.errors import TpukitError
from tpukit.kube import Cluster, Docs

_LEASES = "kube-node-lease"
_TOUCHED = "tpukit.dev/touched"
_PATIENCE = 60.0
_POLL_SECONDS = 1.0


def free(cluster: Cluster) -> None:
    """Delete the leases of simulated nodes, before kwok starts."""
    for name in _nodes(cluster):
        cluster.delete("Lease", name, _LEASES)


def wake(cluster: Cluster) -> None:
    """Modify pods that kwok has not started until it has, after kwok starts."""
    nodes = _nodes(cluster)
    due = time.monotonic() + _PATIENCE
    while time.monotonic() < due:
        held = {one["metadata"]["name"] for one in cluster.list("Lease", _LEASES)}
        waiting = [pod for pod in cluster.list("Pod", fields="status.phase=Pending") if _node(pod) in nodes]
        if nodes <= held and not waiting:
            return
        if nodes <= held:
            _touch(cluster, waiting)
        time.sleep(_POLL_SECONDS)


def _nodes(cluster: Cluster) -> set[str]:
    found = cluster.list("Node")
    simulated = [one for one in found if "kwok.x-k8s.io/node" in one["metadata"].get("annotations", {})]
    return {one["metadata"]["name"] for one in simulated}


def _touch(cluster: Cluster, waiting: Docs) -> None:
    change = {"metadata": {"annotations": {_TOUCHED: str(time.time())}}}

    def touch(pod: dict[str, dict[str, str]]) -> None:
        try:
            cluster.patch("Pod", pod["metadata"]["name"], change, pod["metadata"]["namespace"])
        except TpukitError:  # it was deleted
            return

    with ThreadPoolExecutor(8) as several:
        list(several.map(touch, waiting))


def _node(pod: dict[str, dict[str, str]]) -> str:
    return pod["spec"].get("nodeName") or ""
