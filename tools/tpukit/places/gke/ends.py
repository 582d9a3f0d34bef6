"""Why an attempt ended, told from its pods as they were last seen, its Jobs and its JobSet. Pure.

JobSet decides by rules of its own (render/restarts.py) whether an attempt is repeated and who pays for it. Where it has
decided, what is said here agrees with it: the pods only tell which host it was, and how.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit.places.gke.look import Doc, Found, seconds, true_condition
from tpukit.places.verdict import KILLED, TERMINATED, HostEnd, Verdict, verdict
from tpukit.reasons import MEANINGS, Reason
from tpukit.teams import workloads

HOST_CONTAINER = "host"
_MAINTENANCE = ("cloud.google.com/active-node-maintenance", "cloud.google.com/scheduled-maintenance-time")
_DISRUPTED = {  # reasons of the condition DisruptionTarget
    "TerminationByKubelet": Reason.PREEMPTED,
    "PreemptionByScheduler": Reason.PREEMPTED,
    "EvictionByEvictionAPI": Reason.MAINTENANCE,
    "DeletionByTaintManager": Reason.HOST_LOST,
    "DeletionByPodGC": Reason.HOST_LOST,
}
_EVICTED = {  # reasons of Kueue
    "InClusterQueue": "for a job of higher priority",
    "InCohortReclamation": "its slices were borrowed, and the team that they belong to needs them",
    "InCohortReclaimWhileBorrowing": "its slices were borrowed, and another team needs them more",
    "ClusterQueueStopped": "the queue was stopped",
    "LocalQueueStopped": "the team's queue was stopped",
    "PodsReadyTimeout": "its hosts did not come up in time",
}
_RULES = {"preempted": Reason.PREEMPTED, "peerLost": Reason.PEER_LOST, "userError": Reason.USER_ERROR}
"""What the rules of a JobSet's failurePolicy stand for."""
_PLAIN = ("Error", "Completed", "Terminated")
"""Words of a kubelet that say no more than the exit code does."""
_NO_SUCH_IMAGE = re.compile(r"not found|does not exist|manifest unknown|denied|unauthorized|invalid", re.IGNORECASE)
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")


@dataclass(frozen=True, slots=True)
class Kept:
    """What is remembered of a pod when it is gone."""

    uid: str
    node: str = ""
    phase: str = "Pending"
    began: float = 0.0
    ended: float = 0.0
    code: int | None = None
    said: str = ""  # reason and message of its end
    disrupted: str = ""  # reason of the condition DisruptionTarget
    maintenance: bool = False  # of the node, when it was last seen
    deleted: bool = False  # somebody had asked for its removal before it ended
    out_of_memory: bool = False

    @staticmethod
    def of(pod: Doc, node: Doc | None, before: Kept | None) -> Kept:
        status = pod.get("status", {})
        container = _container(status)
        ended = (container or {}).get("state", {}).get("terminated") or {}
        disrupted = true_condition(pod, "DisruptionTarget")
        done = status.get("phase") in ("Succeeded", "Failed")
        words = [status.get("reason"), status.get("message"), ended.get("reason"), ended.get("message")]
        labels = node["metadata"].get("labels", {}) if node else {}
        asked = "deletionTimestamp" in pod["metadata"] and not disrupted
        return Kept(
            uid=pod["metadata"]["uid"],
            node=pod["spec"].get("nodeName") or "",
            phase=status.get("phase", "Pending"),
            began=seconds(status.get("startTime")),
            ended=seconds(ended.get("finishedAt")),
            code=ended.get("exitCode"),
            said=": ".join(dict.fromkeys(word.strip(" .\n") for word in words if word and word not in _PLAIN)),
            disrupted=disrupted["reason"] if disrupted else "",
            maintenance=any(key in labels for key in _MAINTENANCE) or bool(before and before.maintenance),
            deleted=(before.deleted if before and done else False) or (asked and not done),
            out_of_memory=ended.get("reason") == "OOMKilled",
        )


def why(found: Found, kept: Mapping[str, Kept | None], tails: Mapping[str, Sequence[str]]) -> Verdict:
    """Of an attempt whose JobSet has failed, from all its hosts."""
    said = verdict([_end(name, kept[name], tails.get(name, ())) for name in kept])
    failed = [true_condition(job, "Failed") for job in found.jobs]
    reasons = {one["reason"]: str(one.get("message", "")) for one in failed if one}
    if "DeadlineExceeded" in reasons:
        return Verdict(Reason.TIMEOUT)
    known = said.reason not in (Reason.DONE, Reason.CANCELLED)
    if "BackoffLimitExceeded" in reasons and (not known or MEANINGS[said.reason].lost):
        return Verdict(Reason.USER_ERROR, said.host, said.detail or reasons["BackoffLimitExceeded"])
    if known:
        return said
    told = reasons.get("PodFailurePolicy", "")
    if told:
        return Verdict(Reason.PEER_LOST if told.endswith("index 2") else Reason.PREEMPTED, detail=told)
    condition = found.condition("Failed") or {}
    return Verdict(Reason.USER_ERROR, detail=str(condition.get("message", "")))


def restarted(rule: str, kept: Mapping[str, Kept | None], tails: Mapping[str, Sequence[str]]) -> Verdict:
    """Of an attempt that JobSet repeats by this rule of its own; an empty rule where nobody saw which."""
    said = verdict([_end(name, kept[name], tails.get(name, ())) for name in kept])
    decided = _RULES.get(rule, Reason.HOST_LOST)
    theirs, ours = MEANINGS[decided], MEANINGS[said.reason]
    known = said.reason not in (Reason.DONE, Reason.CANCELLED)
    if known and (ours.budget, ours.lost) == (theirs.budget, theirs.lost):
        return said
    if known and not rule:
        return said if ours.lost else Verdict(decided, said.host, said.detail)
    return Verdict(decided, said.host, said.detail or "JobSet restarted it; its hosts were not seen when they ended")


def evicted(workload: Doc | None, others: Sequence[Doc]) -> Verdict:
    """Of an attempt that Kueue took out of the cluster. `others` are workloads that may have been the cause."""
    if workload is None:
        return Verdict(Reason.EVICTED)
    if by := workloads.evicted_by(workload, others):
        cause = f"for {workloads.team(by)}/{workloads.job(by)} ({workloads.priority_name(by)})"
        return Verdict(Reason.EVICTED, detail=cause)
    conditions = {one["type"]: one for one in workload.get("status", {}).get("conditions", [])}
    told = conditions.get("Preempted") or conditions.get("Evicted") or {}
    return Verdict(Reason.EVICTED, detail=_EVICTED.get(str(told.get("reason")), str(told.get("message", ""))))


@dataclass(frozen=True, slots=True)
class ImageTrouble:
    host: str
    said: str
    hopeless: bool  # waiting is of no use


def image_trouble(pods: Sequence[Doc]) -> ImageTrouble | None:
    """The first host that cannot get its image."""
    for pod in pods:
        status = pod.get("status", {})
        for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
            waiting = container.get("state", {}).get("waiting") or {}
            if waiting.get("reason") in _NO_IMAGE:
                told = str(waiting.get("message") or waiting["reason"])
                hopeless = waiting["reason"] == "InvalidImageName" or _NO_SUCH_IMAGE.search(told) is not None
                host = str(pod["metadata"]["name"].rpartition("-")[0])
                return ImageTrouble(host, f"{container['image']}: {told}", hopeless)
    return None


def _end(name: str, kept: Kept | None, tail: Sequence[str]) -> HostEnd:
    if kept is None:  # it never came to be
        return HostEnd(name, TERMINATED, signalled_by_us=True)
    taken = None
    if kept.disrupted:
        taken = _DISRUPTED.get(kept.disrupted, Reason.HOST_LOST)
        if taken is Reason.PREEMPTED and kept.maintenance:
            taken = Reason.MAINTENANCE
    evicted = kept.said.startswith("Evicted")  # by the kubelet, for what it used
    gone = kept.code is None and kept.phase not in ("Succeeded", "Failed")
    code = (0 if kept.phase == "Succeeded" else TERMINATED if gone else KILLED) if kept.code is None else kept.code
    could_not_start = code in (126, 127, 128)
    return HostEnd(
        name,
        code=code,
        order=kept.ended,
        # Last seen alive, and then its removal: its Job or JobSet did it, after another host had failed.
        signalled_by_us=(kept.deleted or gone) and not taken,
        error=(kept.said or _last(tail) or f"exit code {code}") if could_not_start else "",
        out_of_memory=kept.out_of_memory or (evicted and "memory" in kept.said),
        disk_full=evicted and "storage" in kept.said,
        taken=taken,
        how=f"{kept.node or 'its node'} said {kept.said or kept.disrupted!r}" if taken else "",
        tail=tuple(tail),
    )


def _last(tail: Sequence[str]) -> str:
    return next((line.strip()[:200] for line in reversed(tail) if line.strip()), "")


def _container(status: Doc) -> Mapping[str, Any] | None:
    found: list[Mapping[str, Any]] = status.get("containerStatuses", [])
    return next((one for one in found if one["name"] == HOST_CONTAINER), found[0] if found else None)
