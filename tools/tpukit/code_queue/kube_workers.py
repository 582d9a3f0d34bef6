"""Workers as Kubernetes Jobs and JobSets, one for each queued job: created, observed and deleted."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tpukit.code_queue import startup
from tpukit.code_queue.manifest import LABEL, Target, manifest, name
from tpukit.code_queue.records import SCHEDULED, QueuedJob
from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Conflict, Denied, NotFound
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Entry
from tpukit.kube import Cluster, Doc

JOB_NAME, JOBSET_NAME = "batch.kubernetes.io/job-name", "jobset.sigs.k8s.io/jobset-name"
"""Labels of pods that name their owner."""
KINDS = ("Job", "JobSet")
INSPECT_SECONDS = 30.0
"""Seconds after scheduling from which a worker that does not run is inspected."""


class ClusterStarter:
    def __init__(
        self, cluster: Cluster, target: Target, *, patience: float = 3600.0, now: Callable[[], float] = SYSTEM.now
    ) -> None:
        self._cluster, self._target, self._patience, self._now = cluster, target, patience, now

    def observe(self, entries: Sequence[Entry[QueuedJob]]) -> Mapping[str, tuple[bool, Reason | None, str]]:
        """Observe all entries with one list request per kind. Objects that are being deleted count as absent."""
        objects = {one["metadata"]["name"]: one for kind in KINDS for one in self._list(kind)}
        late = [entry for entry in entries if self._is_late(entry.value) and name(entry.key, entry.value) in objects]
        stuck = self._stuck({name(entry.key, entry.value) for entry in late}) if late else {}
        return {
            entry.key: _seen(objects.get(name(entry.key, entry.value)), stuck.get(name(entry.key, entry.value)))
            for entry in entries
        }

    def start(self, key: str, job: QueuedJob) -> None:
        try:
            self._cluster.create(manifest(key, job, self._target))
        except Conflict:
            return  # it was created before, and the response was lost

    def stop(self, key: str, job: QueuedJob) -> None:
        for kind in KINDS:
            try:
                found = self._cluster.get(kind, name(key, job), self._target.team)["metadata"]
            except NotFound:
                continue
            if (found.get("labels") or {}).get(LABEL) == "worker":
                self._cluster.delete(kind, found["name"], self._target.team, uid=found["uid"])

    def _list(self, kind: str) -> list[Doc]:
        try:
            listed = self._cluster.list(kind, self._target.team, labels=f"{LABEL}=worker")
        except NotFound:
            if kind == "JobSet":  # JobSet is not installed
                return []
            raise
        return [one for one in listed if not one["metadata"].get("deletionTimestamp")]

    def _is_late(self, job: QueuedJob) -> bool:
        return job.status == SCHEDULED and self._now() - job.scheduled_at > INSPECT_SECONDS

    def _stuck(self, names: set[str]) -> dict[str, tuple[Reason, str]]:
        pods: dict[str, list[Doc]] = {}
        for pod in self._list("Pod"):
            labels = pod["metadata"].get("labels") or {}
            pods.setdefault(labels.get(JOBSET_NAME) or labels.get(JOB_NAME, ""), []).append(pod)
        workloads = {}
        for one in self._workloads() if names - set(pods) else ():
            for owner in one["metadata"].get("ownerReferences") or ():
                workloads[owner.get("name", "")] = one
        why = {
            one: startup.hopeless(pods.get(one, []), workloads.get(one), self._now(), self._patience) for one in names
        }
        return {one: said for one, said in why.items() if said}

    def _workloads(self) -> Sequence[Doc]:
        try:
            return self._cluster.list("Workload", self._target.team)
        except (Denied, NotFound):  # no permission, or no Kueue: then the job waits
            return ()


def _seen(one: Doc | None, stuck: tuple[Reason, str] | None) -> tuple[bool, Reason | None, str]:
    if one is None:
        return False, None, ""
    for condition in (one.get("status") or {}).get("conditions") or ():
        if condition.get("status") != "True":
            continue
        said = condition.get("message") or condition.get("reason") or ""
        if condition.get("type") == "Failed":
            return True, Reason.HOST_LOST, f"its pod failed: {said}"
        if condition.get("type") in ("Complete", "Completed"):  # the record still says scheduled
            return True, Reason.HOST_LOST, "its worker ended without running the job"
    return (True, *stuck) if stuck else (True, None, "")
