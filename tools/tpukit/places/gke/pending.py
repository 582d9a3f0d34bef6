"""Explain in one sentence why a submitted attempt does not run yet. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpukit.core.quantities import counted
from tpukit.goodput.causes import Cause
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason
from tpukit.jobs.render.node_labels import capacity_word, host_labels
from tpukit.places.gke import stuck
from tpukit.places.gke.capacity import shortage
from tpukit.places.gke.failure import image_trouble
from tpukit.places.gke.jobsets import Doc, JobSetState, phase, true_condition
from tpukit.teams.waiting import Queues
from tpukit.teams.waiting import why as why_in_queue

_BEING_MADE = ("TriggeredScaleUp", "NodePoolCreationStarted", "ProvisioningRequestCreated")
"""Events about nodes that are being created."""
_USUAL = ("follower pod node selector", "already exists")
"""Rejections that resolve themselves: a slice's first host has no node yet, or a Job of the last attempt is leaving."""
_NEVER = "can never run"
"""The wording of teams.waiting for a queue that is too small."""
_MOUNT_ADVICE = {
    "code = PermissionDenied desc = failed to get GCS bucket": "its team's account may not read the bucket: it needs "
    "roles/storage.objectUser there, or roles/storage.objectViewer where the job only reads",
    "code = NotFound desc = failed to get GCS bucket": "create the bucket, or correct its name in `mounts`",
    "gcsfuse.csi.storage.gke.io not found": "the cluster has no Cloud Storage FUSE CSI driver: enable that add-on",
    "Workload Identity Federation is not enabled": "buckets are mounted as the job's own account",
}
"""Advice by the message of GKE's driver for buckets.

https://github.com/GoogleCloudPlatform/gcs-fuse-csi-driver/blob/main/docs/troubleshooting.md
"""
_CANNOT_BE_MADE = ("NodePoolCreationFailed", "NotTriggerScaleUp", "FailedScaleUp")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """Cluster state that is read only when something waits. None: this account may not list it."""

    queues: Queues | None = None
    nodes: Sequence[Doc] | None = None
    events: Sequence[Doc] = ()


@dataclass(frozen=True, slots=True)
class Waiting:
    detail: str
    reason: Reason | None = None  # if the record has one for it
    counts_as: Cause = Cause.WAITING


def why(plan: Plan, state: JobSetState, around: Surroundings) -> Waiting:
    if state.workload is None and state.admitted_at is None:
        refused = _said(
            around.events, state.jobset, ("CreateWorkloadFailed", "FailedToCreateWorkload", "ErrWorkloadCompose")
        )
        return Waiting(f"Kueue refuses it: {refused}" if refused else "Kueue has not looked at it yet")
    if state.admitted_at is None:
        assert state.workload is not None
        said = why_in_queue(state.workload, around.queues) if around.queues else ""
        # The queue is too small, even when all of it is free.
        reason = Reason.NO_QUOTA if _NEVER in said else None
        return Waiting(said or "waiting for its turn in the queue of its team", reason)
    pods = state.current_pods()
    if trouble := image_trouble(pods):
        return Waiting(f"the image cannot be pulled: {trouble.said}", counts_as=Cause.STARTING)
    if len(pods) < plan.hosts:
        refused = next(
            (text for job in state.jobs if (text := _said(around.events, job, ("FailedCreate",)))), ""
        ) or _said(around.events, state.jobset, ("JobCreationFailed",))
        if refused:
            return Waiting(f"its hosts cannot be created: {refused}", counts_as=Cause.STARTING)
    last = stuck.of_last_attempt(state, around.nodes)
    if last and (not pods or stuck.NOT_READY in last):
        return Waiting(last)
    if unplaced := [pod for pod in pods if _unscheduled(pod)]:
        short = shortage(around.events, {plan.id, *(str(pod["metadata"]["name"]) for pod in unplaced)})
        reason, counts_as = (short.reason, Cause.WAITING) if short else (None, Cause.MAKING)
        return Waiting(_no_nodes(plan, unplaced, around), reason, counts_as)
    if waiting := _container_waits(pods) or _mount_waits(pods, around.events):
        return Waiting(waiting, counts_as=Cause.STARTING)
    running = sum(1 for pod in pods if phase(pod) == "Running")
    return Waiting(f"{running} of {plan.hosts} hosts have started", counts_as=Cause.STARTING)


def _no_nodes(plan: Plan, pods: Sequence[Doc], around: Surroundings) -> str:
    wanted = host_labels(plan.slice, capacity_word(plan.spec.capacity))
    shape = f"{plan.slice.name} ({plan.slice.topology})"
    names = [pod["metadata"]["name"] for pod in pods]
    own = [one for one in around.events if one.get("involvedObject", {}).get("name") in names]
    failed = [one for one in own if one.get("reason") in _CANNOT_BE_MADE]
    if any(one.get("reason") in _BEING_MADE for one in own) and not failed:
        return f"a pool of {shape} is being created for the job"
    if around.nodes is not None:
        fitting = [node for node in around.nodes if wanted.items() <= node["metadata"].get("labels", {}).items()]
        if not fitting:
            more = f": {failed[-1].get('message', '')}" if failed else ""
            labels = ", ".join(f"{key.rpartition('/')[2]}={value}" for key, value in wanted.items())
            return f"the cluster has no nodes of {shape} ({labels}){more}"
        ready = [node for node in fitting if true_condition(node, "Ready")]
        if len(ready) < plan.hosts:
            return f"{counted(plan.hosts, 'host')} of {shape} needed; the cluster has {len(ready)} ready"
    said = _scheduler_says(pods[0])
    return f"{len(pods)} of {plan.hosts} hosts have no node of {shape}" + (f": {said}" if said else "")


def _scheduler_says(pod: Doc) -> str:
    conditions = pod.get("status", {}).get("conditions", [])
    return next((str(one.get("message", "")) for one in conditions if one["type"] == "PodScheduled"), "")


def _unscheduled(pod: Doc) -> bool:
    conditions = pod.get("status", {}).get("conditions", [])
    return any(one["type"] == "PodScheduled" and one["status"] == "False" for one in conditions)


def _container_waits(pods: Sequence[Doc]) -> str:
    for pod in pods:
        for container in pod.get("status", {}).get("containerStatuses", []):
            waiting = container.get("state", {}).get("waiting") or {}
            if waiting.get("message"):
                return f"{pod['metadata']['name']} cannot start: {waiting['message']}"
    return ""


def _mount_waits(pods: Sequence[Doc], events: Sequence[Doc]) -> str:
    """Return why volumes cannot be mounted, which only the kubelet's events report."""
    for pod in pods:
        states = [
            one.get("state", {}).get("waiting") or {} for one in pod.get("status", {}).get("containerStatuses", [])
        ]
        if not any(one.get("reason") in ("ContainerCreating", "PodInitializing") for one in states):
            continue
        own = [one for one in events if one.get("involvedObject", {}).get("uid") == pod["metadata"]["uid"]]
        failed = [one for one in own if one.get("reason") == "FailedMount"]
        if failed:
            said = str(max(failed, key=lambda one: str(one.get("lastTimestamp") or "")).get("message", ""))
            advice = next((advice for words, advice in _MOUNT_ADVICE.items() if words in said), "")
            return f"{pod['metadata']['name']} cannot start: {said}" + (f"; {advice}" if advice else "")
    return ""


def _said(events: Sequence[Doc], about: Doc | None, reasons: Sequence[str]) -> str:
    uid = about["metadata"]["uid"] if about else ""
    texts = [
        str(one.get("message", ""))
        for one in events
        if one.get("involvedObject", {}).get("uid") == uid
        and one.get("reason") in reasons
        and not any(words in str(one.get("message", "")) for words in _USUAL)
    ]
    return texts[-1] if texts else ""
