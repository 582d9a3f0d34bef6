"""The state of one JobSet in a cluster: its counters and conditions, its Workload, Jobs and pods. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from typing import Any

from tpukit.jobs.plan import ATTEMPT

Doc = Mapping[str, Any]

JOBSET = "jobset.sigs.k8s.io/"
NAME, UID = f"{JOBSET}jobset-name", f"{JOBSET}jobset-uid"
RESTART, REPLICATED_JOB = f"{JOBSET}restart-attempt", f"{JOBSET}replicatedjob-name"
SENDER = "tpukit.dev/sender"
"""Annotation of a JobSet: the store that its job is in."""
TERMINAL = ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class JobSetState:
    """A JobSet with everything that belongs to it. Pods and Jobs may outlive it by a moment."""

    jobset: Doc | None
    workload: Doc | None = None
    jobs: Sequence[Doc] = ()
    pods: Sequence[Doc] = ()
    foreign: str = ""  # uid of another sender's JobSet of that name

    @property
    def uid(self) -> str:
        return str(self._meta.get("uid", ""))

    @property
    def made_for(self) -> int:
        """The attempt that the JobSet was created for."""
        noted = str(self._annotations.get(ATTEMPT, "0"))
        return int(noted) if noted.isascii() and noted.isdigit() else 0

    @property
    def restarts(self) -> int:
        return int(self._status.get("restarts") or 0)

    @property
    def counted(self) -> int:
        """Restarts charged to the user's budget."""
        return int(self._status.get("restartsCountTowardsMax") or 0)

    @property
    def evictions(self) -> int:
        status = self.workload.get("status", {}) if self.workload else {}
        return sum(int(one.get("count") or 0) for one in status.get("schedulingStats", {}).get("evictions", []))

    @property
    def sender(self) -> str:
        return str(self._annotations.get(SENDER, ""))

    @property
    def leaving(self) -> bool:
        return "deletionTimestamp" in self._meta

    @property
    def finished(self) -> bool:
        return bool(self.condition("Completed") or self.condition("Failed"))

    @property
    def active(self) -> bool:
        """True while part of it runs, or may begin to run without a driver."""
        if self.jobset is not None and not self.finished:
            return True
        return any(map(runs, self.pods)) or any(map(_makes_pods, self.jobs))

    @property
    def admitted_at(self) -> float | None:
        """The time of the last admission by Kueue; None while it waits.

        Without Kueue, a JobSet that is not suspended counts as admitted.
        """
        if self.workload is None:
            suspended = bool((self.jobset or {}).get("spec", {}).get("suspend"))
            return None if suspended or self.jobset is None else 0.0
        if true_condition(self.workload, "Evicted"):  # its last hosts are stopping; it stays Admitted until then
            return None
        admitted = true_condition(self.workload, "Admitted")
        return seconds(admitted["lastTransitionTime"]) if admitted else None

    @property
    def ended_at(self) -> float:
        """The time when it finished or its deletion was requested; 0: neither."""
        condition = self.condition("Completed") or self.condition("Failed")
        return (
            seconds(condition.get("lastTransitionTime")) if condition else seconds(self._meta.get("deletionTimestamp"))
        )

    def condition(self, kind: str) -> Doc | None:
        """Return a condition of the JobSet that is true."""
        return true_condition(self.jobset or {}, kind)

    def pods_of_restart(self, number: int) -> list[Doc]:
        return [pod for pod in self.pods if label(pod, RESTART) == str(number)]

    def current_pods(self) -> list[Doc]:
        """Return the pods of the current restart and admission, without earlier ones that are still terminating."""
        since = self.admitted_at
        if since is None:
            return []
        pods = self.pods_of_restart(self.restarts)
        return [pod for pod in pods if seconds(pod["metadata"].get("creationTimestamp")) >= since]

    @property
    def _meta(self) -> Doc:
        meta: Doc = (self.jobset or {}).get("metadata", {})
        return meta

    @property
    def _annotations(self) -> Doc:
        annotations: Doc = self._meta.get("annotations") or {}
        return annotations

    @property
    def _status(self) -> Doc:
        status: Doc = (self.jobset or {}).get("status", {})
        return status


def condition(document: Doc, kind: str) -> Doc | None:
    conditions: list[Doc] = document.get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind), None)


def true_condition(document: Doc, kind: str) -> Doc | None:
    one = condition(document, kind)
    return one if one and one["status"] == "True" else None


def label(document: Doc, key: str) -> str:
    return str((document["metadata"].get("labels") or {}).get(key, ""))


def phase(pod: Doc) -> str:
    return str(pod.get("status", {}).get("phase") or "Pending")


def runs(pod: Doc) -> bool:
    return phase(pod) not in TERMINAL


def host_of(pod: Doc) -> str:
    """Return the host's name: that of its pod without the unique suffix."""
    return str(pod["metadata"]["name"].rpartition("-")[0])


@lru_cache(maxsize=4096)
def seconds(text: str | None) -> float:
    """Return a Kubernetes time in seconds since the epoch, cached because thousands of pods share a few times."""
    return datetime.fromisoformat(text).timestamp() if text else 0.0


def _makes_pods(job: Doc) -> bool:
    ended = true_condition(job, "Complete") or true_condition(job, "Failed")
    return not ended and not job.get("spec", {}).get("suspend") and "deletionTimestamp" not in job["metadata"]
