"""Draining of nodes: pods are evicted through the API server, with their grace period.

GKE drains the nodes of a deleted pool, waits up to an hour for grace periods, and ignores PodDisruptionBudgets
(https://cloud.google.com/kubernetes-engine/docs/concepts/node-pools) unless the pool's nodeDrainConfig says otherwise.
It is a guess that it honours them when a pool only shrinks. The API server marks an evicted pod as disrupted
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
"""Delay before the next attempt to evict a protected pod, the same as in kubectl drain."""


def evict(api: Api, pod: Object) -> None:
    """Evict a pod.

    Raise Transient while a PodDisruptionBudget forbids it, and Conflict if another pod has its name by now.
    """
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
    """A drain of any number of nodes. Its only state is when to retry each pod."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._again: dict[str, float] = {}

    def go_on(self, pods: Iterable[Object], deadline: float, *, budgets: bool) -> bool:
        """Evict the pods that are due, and return whether none is left or the deadline has passed."""
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
        """Delete the pods that are left on removed nodes.

        Pods of DaemonSets would otherwise wait a minute for their end, and ended pods that were not removed would stay
        forever.
        """
        for pod in pods:
            if not _over(pod) or "deletionTimestamp" in pod["metadata"]:
                self._api.delete("Pod", pod["metadata"]["name"], pod["metadata"]["namespace"], grace=0)


def _over(pod: Object) -> bool:
    return pod.get("status", {}).get("phase") in ("Succeeded", "Failed")


def of_daemon_set(pod: Object) -> bool:
    """Return whether the pod belongs to a DaemonSet, which would recreate it at once after an eviction."""
    return any(owner["kind"] == "DaemonSet" for owner in pod["metadata"].get("ownerReferences", []))
