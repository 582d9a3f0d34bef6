"""The state of a namespace at one moment for all of its jobs, with one list request per kind.

Pods come from a mirror, which costs the API server nothing while nothing changes.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tpukit.core.clock import Clock
from tpukit.core.errors import Denied, NotFound, Transient
from tpukit.kube import Cluster, Docs
from tpukit.kube.documents import SLIM
from tpukit.kube.mirror import Mirror
from tpukit.places.gke.jobsets import NAME, UID, Doc, JobSetState, label
from tpukit.places.gke.pending import Surroundings
from tpukit.teams import usage
from tpukit.teams.waiting import Queues

SYNC_SECONDS = 20.0
"""Time limit for the first list of all pods."""
IDLE_SECONDS = 600.0
"""Time without use after which a mirror is closed."""
SURROUNDINGS_SECONDS = 10.0
"""Maximum age of what is only needed to explain why a job waits."""


@dataclass(frozen=True, slots=True)
class Listing:
    """The objects of one namespace."""

    jobsets: Mapping[str, Doc] = field(default_factory=dict)
    workloads: Mapping[str, Doc] = field(default_factory=dict)  # by the uid of their JobSet
    jobs: Mapping[str, list[Doc]] = field(default_factory=dict)  # by the name of their JobSet
    pods: Mapping[str, list[Doc]] = field(default_factory=dict)

    def state(self, name: str, sender: str) -> JobSetState:
        """Return the state of the JobSet with this name if this store sent it, without objects of another sender's."""
        state = self.any_state(name)
        if state.jobset is None or state.sender == sender:
            return state
        theirs = state.uid
        return JobSetState(
            None,
            None,
            [one for one in state.jobs if label(one, UID) != theirs],
            [one for one in state.pods if label(one, UID) != theirs],
            theirs,
        )

    def any_state(self, name: str) -> JobSetState:
        jobset = self.jobsets.get(name)
        uid = str(jobset["metadata"]["uid"]) if jobset else ""
        return JobSetState(jobset, self.workloads.get(uid), self.jobs.get(name, []), self.pods.get(name, []))


class Lister:
    """A reader of the objects of one cluster."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self.cluster = cluster
        self._clock = clock
        self._mirrors: dict[str, tuple[Mirror, float]] = {}  # with the time of their last use
        self._surroundings: dict[str, tuple[float, Surroundings]] = {}
        self._lock = threading.Lock()

    def list(self, namespace: str) -> Listing:
        """List all objects. JobSets come last: what is then missing of a JobSet is newer, and in the next list."""
        pods = self._pods(namespace)
        jobs = self.cluster.list("Job", namespace, labels=NAME, type=SLIM["Job"])
        workloads = self.cluster.list("Workload", namespace, type=SLIM["Workload"])
        jobsets = self.cluster.list("JobSet", namespace, type=SLIM["JobSet"])
        return listing(jobsets, workloads, jobs, pods)

    def fresh(self, namespace: str, name: str) -> JobSetState:
        """Request the current state of one JobSet. Pods come last, so that none it created before are missing."""
        try:
            jobsets = [self.cluster.get("JobSet", name, namespace)]
        except NotFound:
            jobsets = []
        workloads = self.cluster.list("Workload", namespace, type=SLIM["Workload"]) if jobsets else []
        jobs = self.jobs_of(namespace, name)
        pods = self.pods_of(namespace, name)
        return listing(jobsets, workloads, jobs, pods).any_state(name)

    def jobs_of(self, namespace: str, name: str) -> Docs:
        return self.cluster.list("Job", namespace, labels=f"{NAME}={name}", type=SLIM["Job"])

    def pods_of(self, namespace: str, name: str) -> Docs:
        return self.cluster.list("Pod", namespace, labels=f"{NAME}={name}", type=SLIM["Pod"])

    def surroundings(self, namespace: str) -> Surroundings:
        now = self._clock.monotonic()
        with self._lock:
            known = self._surroundings.get(namespace)
        if known is None or now - known[0] >= SURROUNDINGS_SECONDS:
            known = now, _surroundings(self.cluster, namespace)
            with self._lock:
                self._surroundings[namespace] = known
        return known[1]

    def nodes_and_events(self, namespace: str) -> Surroundings:
        """Return current nodes and events of the namespace; those of `surroundings` may be older."""
        return Surroundings(None, allowed(self.cluster, "Node"), allowed(self.cluster, "Event", namespace) or [])

    def close(self) -> None:
        with self._lock:
            mirrors, self._mirrors = self._mirrors, {}
        for mirror, _ in mirrors.values():
            mirror.close()

    def _pods(self, namespace: str) -> Iterable[Doc]:
        now = self._clock.monotonic()
        with self._lock:
            mirror = self._mirrors[namespace][0] if namespace in self._mirrors else self._mirror(namespace)
            self._mirrors[namespace] = mirror, now
            idle = [name for name, (_, used) in self._mirrors.items() if now - used > IDLE_SECONDS]
            for name in idle:
                self._mirrors.pop(name)[0].close()
        if not mirror.wait_tried(SYNC_SECONDS) or mirror.error():
            error = mirror.error()
            raise error or Transient(f"{self.cluster.server} did not list its pods within {SYNC_SECONDS:.0f} s")
        return mirror.objects()

    def _mirror(self, namespace: str) -> Mirror:
        return Mirror(self.cluster, "Pod", namespace, labels=NAME)


def listing(jobsets: Iterable[Doc], workloads: Iterable[Doc], jobs: Iterable[Doc], pods: Iterable[Doc]) -> Listing:
    return Listing(
        {one["metadata"]["name"]: one for one in jobsets},
        {
            owner["uid"]: one
            for one in workloads
            for owner in one["metadata"].get("ownerReferences", [])
            if owner.get("kind") == "JobSet"
        },
        _by_jobset(jobs),
        _by_jobset(pods),
    )


def allowed(cluster: Cluster, kind: str, namespace: str = "") -> Docs | None:
    """Return all objects of a kind; None if the account may not list them, or the kind does not exist."""
    try:
        return cluster.list(kind, namespace, type=SLIM.get(kind))
    except (Denied, NotFound):
        return None


def _surroundings(cluster: Cluster, team: str) -> Surroundings:
    cluster_queues, flavors = allowed(cluster, "ClusterQueue"), allowed(cluster, "ResourceFlavor")
    workloads = allowed(cluster, "Workload")
    if workloads is None:
        workloads = cluster.list("Workload", team, type=SLIM["Workload"])
    elif cluster_queues is not None:
        cluster_queues = usage.counted(cluster_queues, workloads)
    local_queues = cluster.list("LocalQueue", team)
    queues = None
    if cluster_queues is not None and flavors is not None:
        queues = Queues(workloads, local_queues, cluster_queues, flavors)
    return Surroundings(queues, allowed(cluster, "Node"), allowed(cluster, "Event", team) or [])


def _by_jobset(documents: Iterable[Doc]) -> dict[str, list[Doc]]:
    grouped: dict[str, list[Doc]] = {}
    for one in documents:
        grouped.setdefault(label(one, NAME), []).append(one)
    return grouped
