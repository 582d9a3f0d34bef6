"""One look at a namespace: what the cluster says of its JobSets, found with one list call for each kind."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from tpukit.kube import Cluster
from tpukit.render.jobset import ATTEMPT

Doc = Mapping[str, Any]

JOBSET = "jobset.sigs.k8s.io/"
SENDER = "tpukit.dev/sender"
"""Annotation of a JobSet: the store that knows its job."""


@dataclass(frozen=True, slots=True)
class Found:
    """A JobSet with all that belongs to it. Pods and Jobs may outlive it by a moment."""

    jobset: Doc | None
    workload: Doc | None = None
    jobs: tuple[Doc, ...] = ()
    pods: tuple[Doc, ...] = ()

    @property
    def first(self) -> int:
        """The attempt that the JobSet was made for."""
        noted = str(self._meta.get("annotations", {}).get(ATTEMPT, "0"))
        return int(noted) if noted.isascii() and noted.isdigit() else 0

    @property
    def restarts(self) -> int:
        return int(self._status.get("restarts") or 0)

    @property
    def counted(self) -> int:
        """Restarts that the user's budget paid for."""
        return int(self._status.get("restartsCountTowardsMax") or 0)

    @property
    def evictions(self) -> int:
        status = self.workload.get("status", {}) if self.workload else {}
        return sum(int(one.get("count") or 0) for one in status.get("schedulingStats", {}).get("evictions", []))

    @property
    def attempt(self) -> int:
        """The attempt that it is at: JobSet counts its restarts, Kueue its evictions, and each begins another."""
        return self.first + self.restarts + self.evictions

    @property
    def sender(self) -> str:
        return str(self._meta.get("annotations", {}).get(SENDER, ""))

    @property
    def leaving(self) -> bool:
        return "deletionTimestamp" in self._meta

    def condition(self, kind: str) -> Doc | None:
        """A condition of the JobSet that holds."""
        return true_condition(self.jobset or {}, kind)

    @property
    def finished(self) -> bool:
        return bool(self.condition("Completed") or self.condition("Failed"))

    @property
    def admitted_at(self) -> float | None:
        """When Kueue last let it in; None while it waits. Without Kueue, a JobSet that is not suspended is in."""
        if self.workload is None:
            suspended = bool((self.jobset or {}).get("spec", {}).get("suspend"))
            return None if suspended or self.jobset is None else 0.0
        admitted = true_condition(self.workload, "Admitted")
        return seconds(admitted["lastTransitionTime"]) if admitted else None

    def current_pods(self) -> tuple[Doc, ...]:
        """Those of the attempt that it is at: others are on their way out."""
        since = self.admitted_at
        if since is None:
            return ()
        return tuple(
            pod
            for pod in self.pods
            if label(pod, f"{JOBSET}restart-attempt") == str(self.restarts)
            and seconds(pod["metadata"]["creationTimestamp"]) >= since
        )

    @property
    def _meta(self) -> Doc:
        meta: Doc = (self.jobset or {}).get("metadata", {})
        return meta

    @property
    def _status(self) -> Doc:
        status: Doc = (self.jobset or {}).get("status", {})
        return status


@dataclass(frozen=True, slots=True)
class Look:
    """A namespace as it was at one moment."""

    at: float
    jobsets: Mapping[str, Doc] = field(default_factory=dict)
    workloads: Mapping[str, Doc] = field(default_factory=dict)  # by the uid of their JobSet
    jobs: Mapping[str, tuple[Doc, ...]] = field(default_factory=dict)  # by the name of their JobSet
    pods: Mapping[str, tuple[Doc, ...]] = field(default_factory=dict)

    def find(self, name: str) -> Found:
        jobset = self.jobsets.get(name)
        uid = jobset["metadata"]["uid"] if jobset else ""
        return Found(jobset, self.workloads.get(uid), self.jobs.get(name, ()), self.pods.get(name, ()))


def take(cluster: Cluster, namespace: str, at: float) -> Look:
    """Of all namespaces, where `namespace` is empty.

    JobSets come last: what is then missing of a JobSet belongs to a later moment, and the next look finds it.
    """
    owned = f"{JOBSET}jobset-name"
    pods = cluster.list("Pod", namespace, labels=owned)
    jobs = cluster.list("Job", namespace, labels=owned)
    workloads = cluster.list("Workload", namespace)
    jobsets = cluster.list("JobSet", namespace)
    return Look(
        at,
        {one["metadata"]["name"]: one for one in jobsets},
        {
            owner["uid"]: one
            for one in workloads
            for owner in one["metadata"].get("ownerReferences", [])
            if owner["kind"] == "JobSet"
        },
        _by_jobset(jobs),
        _by_jobset(pods),
    )


def true_condition(document: Doc, kind: str) -> Doc | None:
    conditions: list[Doc] = document.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)


def label(document: Doc, key: str) -> str:
    return str(document["metadata"].get("labels", {}).get(key, ""))


def seconds(text: str | None) -> float:
    """A time of Kubernetes, since the epoch."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _by_jobset(documents: Iterable[Doc]) -> dict[str, tuple[Doc, ...]]:
    found: dict[str, tuple[Doc, ...]] = {}
    for one in documents:
        name = label(one, f"{JOBSET}jobset-name")
        found[name] = (*found.get(name, ()), one)
    return found
