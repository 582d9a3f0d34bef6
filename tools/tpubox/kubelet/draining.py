"""Pods leave their nodes as a drain makes them: evicted through the API server, with their grace.

GKE drains the nodes of a pool that is deleted, waits for graces of up to an hour, and keeps no PodDisruptionBudgets
(https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools) unless the pool's nodeDrainConfig says so. That it
keeps them where a pool only shrinks is a guess. The API server marks an evicted pod as disrupted
(EvictionByEvictionAPI).
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from tpubox.kubelet.api_server import Api
from tpubox.kubelet.env import Object
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NotFound, Transient

PATIENCE_SECONDS = 3600.0
RETRY_SECONDS = 5.0
"""As long as kubectl drain waits before it asks again for a pod that may not be evicted yet."""


def evict(api: Api, pod: Object) -> None:
    """Transient while a PodDisruptionBudget forbids it, Conflict where another pod has its name by now."""
    name, namespace = pod["metadata"]["name"], pod["metadata"]["namespace"]
    eviction = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": namespace},
        "deleteOptions": {"preconditions": {"uid": pod["metadata"]["uid"]}},
    }
    with suppress(NotFound):
        api.call("POST", f"/api/v1/namespaces/{namespace}/pods/{name}/eviction", body=eviction)


class Drain:
    """Of any number of nodes. Nothing is lost with it but when a pod may be asked for again."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._again: dict[str, float] = {}

    def go_on(self, pods: Iterable[Object], deadline: float, *, budgets: bool) -> bool:
        """Ask those of these pods to go that were not asked yet; whether none is left, or it took too long."""
        now = self._clock.now()
        left = [pod for pod in pods if not _over(pod) and not of_daemon_set(pod)]
        self._again = {uid: due for uid, due in self._again.items() if due > now}
        for pod in left:
            metadata = pod["metadata"]
            if "deletionTimestamp" not in metadata and metadata["uid"] not in self._again:
                self._again[metadata["uid"]] = now + RETRY_SECONDS
                with suppress(Transient, Conflict):
                    self._evict(pod, budgets)
        return not left or now >= deadline

    def _evict(self, pod: Object, budgets: bool) -> None:
        try:
            evict(self._api, pod)
        except Transient:
            if budgets:
                raise
            self._api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"])

    def end(self, pods: Iterable[Object]) -> None:
        """Their nodes are gone: what is left of them, as pods of DaemonSets, would wait for its end for a minute, and
        pods that ended and were not removed yet for ever."""
        for pod in pods:
            if not _over(pod) or "deletionTimestamp" in pod["metadata"]:
                self._api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)


def _over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def of_daemon_set(pod: Object) -> bool:
    """Evicted, it would be there again at once."""
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))
