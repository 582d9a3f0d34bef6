"""Documents as a cluster returns them, built from the values that matter to a test."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tpukit.jobs import plan
from tpukit.jobs.plan import ClusterName, Plan
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import Handle
from tpukit.places.gke.jobsets import NAME, REPLICATED_JOB, RESTART, UID, JobSetState

Doc = dict[str, Any]


def planned(**fields: Any) -> Plan:
    spec = {"name": "train", "tpu": "v4-16", "slices": 2, "command": ["x"], "image": "i:1", "capacity": "spot"}
    settings = Settings.from_json({"artifacts": "gs://my-artifacts", "team": "research"})
    cluster = ClusterName("fake", "https://fake.example", "uid-of-fake")
    return plan.make(JobSpec.from_json({**spec, **fields}), settings, "gke", target=cluster)


def handle(number: int = 0, plan: Plan | None = None, **fields: Any) -> Handle:
    return Handle(plan or planned(), Attempt(number, stage=number, origin=0, **fields))


def time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def condition(kind: str, reason: str = "", message: str = "", at: float = 100.0, status: str = "True") -> Doc:
    return {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": time(at)}


def jobset(
    *conditions: Doc, attempt: int = 0, restarts: int = 0, counted: int = 0, uid: str = "js", **metadata: Any
) -> Doc:
    notes = {"tpukit.dev/attempt": str(attempt), "tpukit.dev/sender": "me"}
    return {
        "metadata": {"name": "train-1", "namespace": "research", "uid": uid, "annotations": notes, **metadata},
        "spec": {},
        "status": {"restarts": restarts, "restartsCountTowardsMax": counted, "conditions": list(conditions)},
    }


def workload(*conditions: Doc, evictions: int = 0) -> Doc:
    evicted = [{"reason": "Preempted", "underlyingCause": "", "count": evictions}] if evictions else []
    owner = {"kind": "JobSet", "name": "train-1", "uid": "js"}
    return {
        "metadata": {"name": "w", "namespace": "research", "uid": "w", "ownerReferences": [owner]},
        "spec": {"podSets": [], "queueName": "research"},
        "status": {"conditions": list(conditions), "schedulingStats": {"evictions": evicted}},
    }


ADMITTED = condition("Admitted", at=100.0)


def pod(
    name: str = "train-1-slice-0-0-abcde",
    phase: str = "Running",
    *,
    code: int | None = None,
    ended: float = 0.0,
    restart: int = 0,
    created: float = 100.0,
    reason: str = "",
    message: str = "",
    disrupted: str = "",
    **more: Any,
) -> Doc:
    state: Doc = {"running": {}}
    if code is not None:
        state = {"terminated": {"exitCode": code, "reason": "Error", "finishedAt": time(ended or 200.0)}}
    status: Doc = {"phase": phase, "startTime": time(created), "conditions": []}
    if phase != "Pending":
        status["containerStatuses"] = [{"name": "host", "image": "i:1", "state": state}]
    if reason:
        status |= {"reason": reason, "message": message}
    if disrupted:
        status["conditions"].append(condition("DisruptionTarget", disrupted))
    labels = {RESTART: str(restart), REPLICATED_JOB: "slice", NAME: "train-1", UID: "js"}
    metadata = {"name": name, "namespace": "research", "uid": f"uid-{name}", "creationTimestamp": time(created)}
    return {
        "metadata": {**metadata, "labels": labels, **more},
        "spec": {"nodeName": "node-1", "containers": [{"name": "host"}]},
        "status": status,
    }


def state_of(*pods: Doc, of: Doc | None = None, queued: Doc | None = None, jobs: tuple[Doc, ...] = ()) -> JobSetState:
    return JobSetState(of or jobset(), queued or workload(ADMITTED), jobs, pods)
