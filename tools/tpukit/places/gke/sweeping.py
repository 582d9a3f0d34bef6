"""JobSets that carry this store's mark and belong to no active job: what a driver that died at the wrong moment left.

A store that was lost, or a second one, has another mark. Nothing is removed that was not seen twice, over a time in
which whoever sends it has long recorded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tpukit.clock import Clock
from tpukit.errors import Conflict, Denied, TpukitError
from tpukit.kube import Cluster, Docs
from tpukit.kube.documents import SLIM
from tpukit.places.base import Handle
from tpukit.places.gke.jobsets import JobSetState, seconds

MINIMUM_AGE = 600.0
BETWEEN_SECONDS = 60.0
OURS = "app.kubernetes.io/managed-by=tpukit"


@dataclass(slots=True)
class Sweeper:
    clock: Clock
    sender: Callable[[], str]
    _seen: dict[str, float] = field(default_factory=dict)  # uid: when it was first seen without a job

    def sweep(self, cluster: Cluster, known: Callable[[], Sequence[Handle]]) -> list[str]:
        """What was removed. `known` is asked after the cluster: what is sent between the two is too young anyway."""
        jobsets = _jobsets(cluster, known)
        active = {(handle.plan.team, handle.plan.id) for handle in known()}
        now = self.clock.monotonic()
        removed = []
        without_job: dict[str, float] = {}
        for document in jobsets:
            state = JobSetState(document)
            name, namespace = str(document["metadata"]["name"]), str(document["metadata"]["namespace"])
            ours = state.sender == self.sender() and not state.finished and not state.leaving
            age = self.clock.now() - seconds(document["metadata"].get("creationTimestamp"))
            if not ours or (namespace, name) in active or age < MINIMUM_AGE:
                continue
            since = self._seen.get(state.uid, now)
            without_job[state.uid] = since
            if now - since >= BETWEEN_SECONDS and _removed(cluster, name, namespace, state.uid):
                removed.append(f"{namespace}/{name}")
        self._seen = without_job
        return removed


def _removed(cluster: Cluster, name: str, namespace: str, uid: str) -> bool:
    try:
        cluster.delete("JobSet", name, namespace, foreground=True, uid=uid)
    except Conflict:  # somebody made another one of that name
        return False
    except TpukitError:
        return False
    return True


def _jobsets(cluster: Cluster, known: Callable[[], Sequence[Handle]]) -> Docs:
    try:
        return cluster.list("JobSet", labels=OURS, type=SLIM["JobSet"])
    except Denied:  # whoever may not list everywhere lists where their jobs are
        teams = sorted({handle.plan.team for handle in known()})
        return [one for team in teams for one in cluster.list("JobSet", team, labels=OURS, type=SLIM["JobSet"])]
