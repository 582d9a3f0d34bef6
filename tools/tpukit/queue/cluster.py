"""Workers as Kubernetes Jobs, one for each queued job: made, observed and removed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from tpukit.errors import Conflict
from tpukit.kube import Cluster, Doc
from tpukit.queue.manifest import LABEL, Target, manifest, name
from tpukit.queue.records import QueuedJob
from tpukit.reasons import Reason
from tpukit.store import Entry


class ClusterStarter:
    def __init__(self, cluster: Cluster, target: Target) -> None:
        self._cluster, self._target = cluster, target

    def observe(self, entries: Sequence[Entry[QueuedJob]]) -> Mapping[str, tuple[bool, Reason | None, str]]:
        """One list for all. A Job that is being removed is not there any more."""
        listed = self._cluster.list("Job", self._target.team, labels=f"{LABEL}=worker")
        jobs = {one["metadata"]["name"]: one for one in listed if not one["metadata"].get("deletionTimestamp")}
        return {entry.key: _seen(jobs.get(name(entry.key, entry.value))) for entry in entries}

    def start(self, key: str, job: QueuedJob) -> None:
        try:
            self._cluster.create(manifest(key, job, self._target))
        except Conflict:
            return  # it was made before, and the answer was lost

    def stop(self, key: str, job: QueuedJob) -> None:
        self._cluster.delete("Job", name(key, job), self._target.team)


def _seen(job: Doc | None) -> tuple[bool, Reason | None, str]:
    if job is None:
        return False, None, ""
    for condition in (job.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        said = condition.get("message") or condition.get("reason") or ""
        if condition.get("type") == "Failed":
            return True, Reason.HOST_LOST, f"its pod failed: {said}"
        if condition.get("type") == "Complete":  # of a job that is still scheduled: its record would say so else
            return True, Reason.HOST_LOST, "its worker ended without having run it"
    return True, None, ""
