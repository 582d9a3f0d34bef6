"""Detection of workers that can never start, from their pods and from Kueue's conditions. Pure.

Users do not see the pods of a queued job: a worker that would wait forever ends with the reason instead. A lack of
nodes is retried like a lost host, within the job's budget; other reasons are permanent.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from tpukit.jobs.reasons import Reason
from tpukit.places.gke.failure import image_trouble
from tpukit.places.gke.jobsets import condition, seconds

Doc = dict[str, Any]
PASSING_SECONDS = 300.0
"""Seconds for which a fault may be temporary: an unavailable registry, a Secret or service account being created."""
_CONTAINER = ("CreateContainerConfigError", "CreateContainerError", "RunContainerError")
"""Kubelet's reasons for a container that cannot be created.

https://github.com/kubernetes/kubernetes/blob/v1.34.0/pkg/kubelet/kuberuntime/kuberuntime_container.go#L56
"""
_NEVER = re.compile(r"unavailable in ClusterQueue|> maximum capacity|doesn't match node affinity|untolerated taint")
"""Kueue's messages for a request that no quota covers, that exceeds the maximum, or that fits no kind of node.

https://github.com/kubernetes-sigs/kueue/blob/v0.19.2/pkg/scheduler/flavorassigner/flavorassigner.go#L1071
"""
_LATER = re.compile(r"insufficient unused quota|topology")
"""Messages about at least one kind of node that the request can wait for."""


def hopeless(pods: Sequence[Doc], workload: Doc | None, now: float, patience: float) -> tuple[Reason, str] | None:
    """Return why the worker will not start, with a message; None if it still may.

    `patience` is the number of seconds that a pod may be without a node.
    """
    if workload and not pods:
        return _refused(workload, now)
    oldest = min((seconds(str(pod["metadata"].get("creationTimestamp") or "")) for pod in pods), default=now)
    trouble = image_trouble(pods)
    if trouble and (trouble.hopeless or now - oldest > PASSING_SECONDS):
        return Reason.BAD_IMAGE, f"its image cannot be pulled: {trouble.said}"
    for pod in pods:
        if now - oldest > PASSING_SECONDS and (said := _container_waits(pod)):
            return Reason.CANNOT_START, f"its container cannot be created: {said}"
        placed = condition(pod, "PodScheduled")
        if placed and placed.get("status") == "False" and placed.get("reason") == "Unschedulable":
            waited = now - seconds(str(placed.get("lastTransitionTime") or ""))
            if waited > patience:
                said = str(placed.get("message", ""))
                return Reason.NO_CAPACITY, f"no node was available for it in {patience / 60:.0f} minutes: {said}"
    return None


def _container_waits(pod: Doc) -> str:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        waiting = (container.get("state") or {}).get("waiting") or {}
        if waiting.get("reason") in _CONTAINER:
            return f"{waiting['reason']}: {waiting.get('message', '')}"
    return ""


def _refused(workload: Doc, now: float) -> tuple[Reason, str] | None:
    reserved = condition(workload, "QuotaReserved")
    if not reserved or reserved.get("status") != "False":
        return None
    said = str(reserved.get("message", ""))
    since = seconds(str(reserved.get("lastTransitionTime") or ""))
    if _NEVER.search(said) and not _LATER.search(said) and now - since > PASSING_SECONDS:
        return Reason.NO_QUOTA, f"its team's queue can never grant its request: {said}"
    return None
