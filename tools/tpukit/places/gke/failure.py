"""Find why an attempt ended, from its pods as last seen, its Jobs and its JobSet. Pure.

JobSet decides by its own rules (render/restarts.py) whether an attempt is repeated and whether it is charged, from the
exit code of the first host that ended. Peers of a lost host may end with any code. So the verdict agrees with JobSet,
unless all hosts and their nodes together show that hardware was lost: then the user is not charged.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.jobs.render.restarts import restarts
from tpukit.places import log_tail
from tpukit.places.gke.attempts import Event
from tpukit.places.gke.hosts import HostRecord
from tpukit.places.gke.jobsets import TERMINAL, Doc, JobSetState, condition, host_of, true_condition
from tpukit.places.log_tail import Cause
from tpukit.places.verdict import KILLED, TERMINATED, HostEnd, Verdict, verdict
from tpukit.teams import workloads

_DISRUPTED = {  # reasons of the condition DisruptionTarget
    "TerminationByKubelet": Reason.PREEMPTED,
    "PreemptionByScheduler": Reason.PREEMPTED,
    "EvictionByEvictionAPI": Reason.MAINTENANCE,
    "DeletionByTaintManager": Reason.HOST_LOST,
    "DeletionByPodGC": Reason.HOST_LOST,
}
_EVICTED = {  # reasons of Kueue
    "InClusterQueue": "for a job of higher priority",
    "InCohortReclamation": "its slices were borrowed, and their team needs them",
    "InCohortReclaimWhileBorrowing": "its slices were borrowed, and another team has a higher claim to them",
    "ClusterQueueStopped": "the queue was stopped",
    "LocalQueueStopped": "the team's queue was stopped",
    "PodsReadyTimeout": "its hosts did not start in time",
}
_RULES = {"preempted": Reason.PREEMPTED, "peerLost": Reason.PEER_LOST, "userError": Reason.USER_ERROR}
"""Meanings of the rules of a JobSet's failurePolicy."""
_RESTARTING = "FailurePolicy_"
_NOT_SEEN = "JobSet restarted the job, and its hosts ended unobserved"
_NO_SUCH_IMAGE = re.compile(r"not found|does not exist|manifest unknown|invalid", re.IGNORECASE)
_NOT_ALLOWED = re.compile(r"403 Forbidden|denied|unauthorized", re.IGNORECASE)
_MAY_READ = "the account of the nodes may not read it: it needs roles/artifactregistry.reader on its repository"
_NO_IMAGE = ("ErrImagePull", "ImagePullBackOff", "InvalidImageName", "ErrImageNeverPull")

_UNATTENDED = "no driver renewed it for as long as max.unattended allows"
Hosts = Mapping[str, HostRecord | None]


def why(state: JobSetState, hosts: Hosts, runtime: int | None = None) -> Verdict:
    """Return why an attempt whose JobSet failed ended, from all its hosts. `runtime`: max.runtime of the job."""
    said = verdict([_end(name, hosts[name]) for name in hosts])
    failed = [true_condition(job, "Failed") for job in state.jobs]
    reasons = {str(one.get("reason", "")): str(one.get("message", "")) for one in failed if one}
    if "DeadlineExceeded" in reasons:
        late = [job for job in state.jobs if (true_condition(job, "Failed") or {}).get("reason") == "DeadlineExceeded"]
        unattended = any(_ended_by_limit(job, runtime) for job in late)
        return Verdict(Reason.TIMEOUT, detail=_UNATTENDED if unattended else "")
    known = said.reason not in (Reason.DONE, Reason.CANCELLED)
    if "BackoffLimitExceeded" in reasons and not (known and (not MEANINGS[said.reason].lost or _shown(said, hosts))):
        return Verdict(Reason.USER_ERROR, said.host, said.detail or reasons["BackoffLimitExceeded"])
    if known:
        return said
    by_policy = reasons.get("PodFailurePolicy", "")
    if by_policy:
        reason = Reason.PEER_LOST if by_policy.endswith("index 2") else Reason.PREEMPTED
        return Verdict(reason, detail=by_policy)
    failure = state.condition("Failed") or {}
    return Verdict(Reason.USER_ERROR, detail=str(failure.get("message", "")))


def _ended_by_limit(job: Doc, runtime: int | None) -> bool:
    """Return whether the deadline that a Job exceeded was that of max.unattended, and not that of max.runtime."""
    deadline = job.get("spec", {}).get("activeDeadlineSeconds")
    return bool(deadline) and ((runtime is not None and int(deadline) < runtime) or runtime is None)


def restarting_rule(state: JobSetState) -> str:
    """Return the rule of JobSet's current restart. JobSet shows it only until all hosts are ready again."""
    restarting = state.condition("RestartingJobSet")
    reason = str(restarting.get("reason", "")) if restarting else ""
    return reason.removeprefix(_RESTARTING) if reason.startswith(_RESTARTING) else ""


def restarted(event: Event, rule: str, job_rule: str, hosts: Hosts) -> Verdict:
    """Return why an attempt that JobSet repeated ended.

    `rule` is JobSet's own, empty if not observed; `job_rule` is that of the job, which determines what JobSet repeats.
    The counters show what was charged, with two exceptions. If a host's log shows that its program aborted, the driver
    charges it, and stops the JobSet when the budget is spent. If hosts and nodes show that hardware was lost, the
    driver charges nothing, whatever JobSet counted.
    """
    said = verdict([_end(name, hosts[name]) for name in hosts])
    free = [one.name for one in restarts(job_rule) if one.action.endswith("IgnoreMaxRestarts")]
    possible = ["userError"] if event is Event.USER else [one for one in free if rule in ("", one)] or free
    meanings = [(MEANINGS[_RULES[name]].budget, MEANINGS[_RULES[name]].lost) for name in possible]
    ours = MEANINGS[said.reason]
    known = said.reason not in (Reason.DONE, Reason.CANCELLED)
    if known and (ours.budget, ours.lost) in meanings:
        return said
    if known and ours.lost and event is Event.USER and _shown(said, hosts):
        return said
    culprit = hosts.get(said.host)
    if rule == "peerLost" and ours.budget is Budget.USER and culprit is not None and culprit.tail:
        return said  # it aborted by itself: its last lines show that, its exit code does not
    decided = _RULES[possible[0]] if len(possible) == 1 else Reason.HOST_LOST
    return Verdict(decided, said.host if known else "", (said.detail if known else "") or _NOT_SEEN)


def evicted(workload: Doc | None, all_workloads: Sequence[Doc], *, last: bool = True) -> Verdict:
    """Return why Kueue evicted an attempt.

    `all_workloads`: the possible preemptors. `last`: it was not evicted since, so the Workload's conditions are about
    this eviction.
    """
    if workload is None or not last:
        return Verdict(Reason.EVICTED)
    if by := workloads.evicted_by(workload, all_workloads):
        cause = f"for {workloads.team(by)}/{workloads.job(by)} ({workloads.priority_name(by)})"
        return Verdict(Reason.EVICTED, detail=cause)
    said = true_condition(workload, "Preempted") or true_condition(workload, "Evicted") or {}
    return Verdict(Reason.EVICTED, detail=_EVICTED.get(str(said.get("reason")), str(said.get("message", ""))))


def event_time(state: JobSetState, event: Event) -> str | None:
    """Return when the last of these events happened or was over: conditions only record their last change."""
    if event is Event.EVICTED:
        changed = condition(state.workload or {}, "Evicted")
    else:
        changed = condition(state.jobset or {}, "RestartingJobSet")
    return str(changed["lastTransitionTime"]) if changed and changed.get("lastTransitionTime") else None


def _shown(said: Verdict, hosts: Hosts) -> bool:
    """Return whether a lost-hardware verdict rests on more than an exit code: on the node, Kubernetes or log lines."""
    record = hosts.get(said.host)
    if record is not None and (record.disrupted or record.lost):
        return True
    if said.reason is Reason.PEER_LOST:
        return any(one is not None and log_tail.read(one.tail).cause is Cause.PEER for one in hosts.values())
    return record is not None and log_tail.read(record.tail).cause is Cause.CHIP


@dataclass(frozen=True, slots=True)
class ImageTrouble:
    host: str
    said: str
    hopeless: bool  # waiting does not help


def image_trouble(pods: Sequence[Doc]) -> ImageTrouble | None:
    """Return the first host that cannot get its image."""
    for pod in pods:
        status = pod.get("status", {})
        for container in (*status.get("initContainerStatuses", []), *status.get("containerStatuses", [])):
            waiting = container.get("state", {}).get("waiting") or {}
            if waiting.get("reason") in _NO_IMAGE:
                message = str(waiting.get("message") or "")
                said = f"{container.get('image', 'image')}: {waiting['reason']}" + (f": {message}" if message else "")
                if _NOT_ALLOWED.search(message):
                    return ImageTrouble(host_of(pod), f"{said}; {_MAY_READ}", hopeless=True)
                hopeless = waiting["reason"] == "InvalidImageName" or _NO_SUCH_IMAGE.search(message) is not None
                return ImageTrouble(host_of(pod), said, hopeless)
    return None


def _end(name: str, record: HostRecord | None) -> HostEnd:
    if record is None:  # it was never created
        return HostEnd(name, TERMINATED, signalled_by_us=True)
    taken = None
    if record.disrupted:
        taken = _DISRUPTED.get(record.disrupted, Reason.HOST_LOST)
        if taken is Reason.PREEMPTED and record.maintenance:
            taken = Reason.MAINTENANCE
    elif record.lost:
        taken = Reason.MAINTENANCE if record.maintenance else Reason.HOST_LOST
    by_kubelet = record.said.startswith("Evicted")  # for its usage
    gone = record.code is None and record.phase not in TERMINAL
    code = record.code
    if code is None:
        code = 0 if record.phase == "Succeeded" else TERMINATED if gone else KILLED
    could_not_start = code in (126, 127, 128)
    return HostEnd(
        name,
        code=code,
        order=record.ended,
        # Last seen alive, then removed by its Job or JobSet after another host had failed.
        signalled_by_us=(record.deleted or gone) and not taken,
        error=(record.said or _last(record.tail) or f"exit code {code}") if could_not_start else "",
        out_of_memory=record.out_of_memory or (by_kubelet and "memory" in record.said),
        disk_full=by_kubelet and "storage" in record.said,
        taken=taken,
        how=_how(record) if taken else "",
        tail=record.tail,
    )


def _how(record: HostRecord) -> str:
    if record.disrupted:
        return f"{record.node or 'its node'} said {record.said or record.disrupted!r}"
    return record.lost


def _last(tail: Sequence[str]) -> str:
    return next((line.strip()[:200] for line in reversed(tail) if line.strip()), "")
