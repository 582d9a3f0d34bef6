"""JobSets that carry this store's mark and belong to no active job: what a driver that died at the wrong moment left.

A store that was lost, or a second one, has another mark. Nothing is removed that was not seen twice, over a time in
which whoever sends it has long recorded it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from tpukit.clock import Clock
from tpukit.errors import Conflict, Denied, TpukitError, Unauthenticated
from tpukit.kube import Cluster, Docs
from tpukit.kube.documents import SLIM
from tpukit.places.base import Handle, Known
from tpukit.places.gke import code
from tpukit.places.gke.jobsets import JobSetState, seconds

MINIMUM_AGE = 600.0
BETWEEN_SECONDS = 60.0
CODE_AGE = 30 * 86400.0
"""Code that nobody used for so long, and no JobSet and no active job has, goes."""
CODE_SECONDS = 86400.0
OURS = "app.kubernetes.io/managed-by=tpukit"


@dataclass(slots=True)
class Sweeper:
    clock: Clock
    sender: Callable[[], str]
    _seen: dict[str, float] = field(default_factory=dict)  # uid: when it was first seen without a job
    _code_swept: float | None = None

    def sweep(self, cluster: Cluster, known: Callable[[], Known]) -> list[str]:
        """What was removed. `known` is asked after the cluster: what is sent between the two is too young anyway."""
        jobsets = _everywhere(lambda team: cluster.list("JobSet", team, labels=OURS, type=SLIM["JobSet"]), known)
        jobs = known()
        handles = jobs.handles
        active = {(handle.plan.team, handle.plan.id) for handle in handles}
        now = self.clock.monotonic()
        removed = []
        without_job: dict[str, float] = {}
        for document in jobsets:
            state = JobSetState(document)
            name, namespace = str(document["metadata"]["name"]), str(document["metadata"]["namespace"])
            ours = state.sender == self.sender() and not state.finished and not state.leaving
            age = self.clock.now() - seconds(document["metadata"].get("creationTimestamp"))
            if not ours or (namespace, name) in active or name in jobs.unreadable or age < MINIMUM_AGE:
                continue
            since = self._seen.get(state.uid, now)
            without_job[state.uid] = since
            if now - since >= BETWEEN_SECONDS and _removed(cluster, name, namespace, state.uid):
                removed.append(f"{namespace}/{name}")
        self._seen = without_job
        if jobs.unreadable:
            return removed  # a record that cannot be read may need any code
        if self._code_swept is None or now - self._code_swept >= CODE_SECONDS:
            self._code_swept = now
            removed += self._sweep_code(cluster, jobsets, handles)
        return removed

    def _sweep_code(self, cluster: Cluster, jobsets: Docs, handles: Sequence[Handle]) -> list[str]:
        maps = _everywhere(lambda team: cluster.list_metadata("ConfigMap", team, labels=OURS), lambda: Known(handles))
        needed = [handle.plan.snapshot.digest for handle in handles if handle.plan.snapshot]
        removed = []
        for team in sorted({str(one["metadata"]["namespace"]) for one in maps}):
            in_team = [one for one in jobsets if one["metadata"]["namespace"] == team]
            mine = [one for one in maps if one["metadata"]["namespace"] == team]
            for name in code.unused(mine, in_team, self.clock.now(), CODE_AGE, needed):
                with suppress(Denied):  # whoever may removes it
                    cluster.delete("ConfigMap", name, team)
                    removed.append(f"{team}/{name}")
        return removed


def _removed(cluster: Cluster, name: str, namespace: str, uid: str) -> bool:
    try:
        cluster.delete("JobSet", name, namespace, foreground=True, uid=uid)
    except Conflict:  # somebody made another one of that name
        return False
    except TpukitError:
        return False
    return True


def _everywhere(listed: Callable[[str], Docs], known: Callable[[], Known]) -> Docs:
    """Whoever may not list everywhere lists where their jobs are."""
    try:
        return listed("")
    except Unauthenticated:
        raise
    except Denied:
        return [one for team in sorted({handle.plan.team for handle in known().handles}) for one in listed(team)]
