"""Evidence about an attempt's hosts: from its record, its current pods and the last lines of their logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from tpukit.jobs.plan import SLICE_JOB
from tpukit.places.base import Handle
from tpukit.places.gke import hosts
from tpukit.places.gke.hosts import Records
from tpukit.places.gke.jobsets import REPLICATED_JOB, UID, Doc, JobSetState, label, phase, true_condition
from tpukit.places.gke.namespace import Lister
from tpukit.places.gke.pod_log import Target
from tpukit.places.gke.pod_logs import PodLogs

RECORDS_MOST = 50_000
TAILS_MOST = 4
"""Number of failed hosts whose last lines are requested."""


@dataclass(slots=True)
class Evidence:
    """The evidence in one cluster. Its state between two rounds only saves requests."""

    lister: Lister
    logs: PodLogs
    cache: Callable[[Handle, str], Path]  # where lines of a host are stored on this machine
    pod_records: hosts.PodRecords = field(default_factory=hosts.PodRecords)
    nothing_left: dict[str, str] = field(default_factory=dict)  # attempts of which a fresh list showed nothing

    def of(self, handle: Handle, known: Records, pods: Sequence[Doc]) -> Records:
        """Return the records of hosts, updated from these pods."""
        self.pod_records.forget(RECORDS_MOST)
        return hosts.merged(known, pods, self._nodes(handle, pods), self.pod_records)

    def with_last_lines(self, handle: Handle, known: Records, pods: Sequence[Doc]) -> Records:
        """Return updated records with last lines of the first failed hosts and progress of the first host."""
        records = self.of(handle, known, pods)
        targets = {target.host: target for target in (self.target(handle, pod) for pod in begun(pods))}
        failed = sorted(
            (name for name in targets if name in records and records[name].failed),
            key=lambda name: (records[name].ended, name),
        )
        wanted = dict.fromkeys([*failed[:TAILS_MOST], handle.plan.host_names[0]])
        self.logs.settle(key_of(handle), [targets[name] for name in wanted if name in targets])
        records = hosts.with_progress(records, self.logs.progress(key_of(handle)))
        return hosts.with_tails(records, self.logs.tails(key_of(handle)))

    def active(self, handle: Handle, state: JobSetState) -> bool:
        """Return whether anything of the job runs. Return False only after a list made for this call."""
        key = key_of(handle)
        if state.active:
            self.nothing_left.pop(key, None)
            return True
        over = handle.attempt.state.ended  # an attempt that has ended is not sent again
        if over and self.nothing_left.get(key) == state.uid:
            return False
        jobs = state.jobs
        if state.jobset is None:  # deleted in the background: its Jobs go after it and may still create pods
            listed = self.lister.jobs_of(handle.plan.team, handle.plan.id)
            jobs = [one for one in listed if not state.foreign or label(one, UID) != state.foreign]
        if replace(state, jobs=jobs, pods=self.fresh_pods(handle, state)).active:
            return True
        if over:
            self.nothing_left[key] = state.uid
        return False

    def fresh_pods(self, handle: Handle, state: JobSetState) -> list[Doc]:
        """Return current pods, except those of another sender's JobSet of the same name."""
        pods = self.lister.pods_of(handle.plan.team, handle.plan.id)
        return [pod for pod in pods if not state.foreign or label(pod, UID) != state.foreign]

    def target(self, handle: Handle, pod: Doc) -> Target:
        target = Target.of(self.lister.cluster, pod)
        return replace(target, cache=self.cache(handle, target.host), pattern=handle.plan.spec.progress or "")

    def _nodes(self, handle: Handle, pods: Sequence[Doc]) -> dict[str, Doc]:
        """Return the nodes of disrupted hosts, whose labels distinguish maintenance from preemption."""
        if not any(true_condition(pod, "DisruptionTarget") for pod in pods):
            return {}
        nodes = self.lister.surroundings(handle.plan.team).nodes or []
        return {one["metadata"]["name"]: one for one in nodes}


def key_of(handle: Handle) -> str:
    return f"{handle.plan.id}/{handle.attempt.number}"


def begun(pods: Sequence[Doc]) -> list[Doc]:
    return [pod for pod in pods if phase(pod) != "Pending" and label(pod, REPLICATED_JOB) == SLICE_JOB]
