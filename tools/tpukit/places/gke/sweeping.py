"""Sweep JobSets that carry this store's mark and belong to no active job, as a crashed driver leaves them.

A store that was lost, or a second one, has another mark. Only JobSets seen twice are removed, over a time in which the
driver that sent them has long recorded them. What cannot be listed is reported, and the sweep continues.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied, TpukitError, Unauthenticated
from tpukit.kube import Cluster, Doc, Docs
from tpukit.kube.documents import SLIM
from tpukit.places.base import Claim, Handle, Known, unclaimed
from tpukit.places.gke import code
from tpukit.places.gke.jobsets import JobSetState, seconds

MINIMUM_AGE = 600.0
BETWEEN_SECONDS = 60.0
CODE_AGE = 30 * 86400.0
"""Minimum time without use after which code that no JobSet or active job needs is removed."""
CODE_SECONDS = 86400.0
OURS = "app.kubernetes.io/managed-by=tpukit"


@dataclass(slots=True)
class Sweeper:
    clock: Clock
    sender: Callable[[], str]
    _seen: dict[str, float] = field(default_factory=dict)  # uid: when it was first seen without a job
    _code_swept: float | None = None

    def sweep(
        self,
        cluster: Cluster,
        known: Callable[[], Known],
        complain: Callable[[str], None] = lambda text: None,
        claim: Claim = unclaimed,
    ) -> list[str]:
        """Return what was removed. `known` is called after listing: JobSets sent between the two are too young."""
        lists = _Lists(cluster, known, complain)
        jobsets = lists.everywhere(lambda team: cluster.list("JobSet", team, labels=OURS, type=SLIM["JobSet"]))
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
            if now - since >= BETWEEN_SECONDS:
                with claim(name) as free:
                    if free and lists.removed("JobSet", document):
                        removed.append(f"{namespace}/{name}")
        self._seen = without_job
        if jobs.unreadable:
            return removed  # an unreadable record may need any code
        if self._code_swept is None or now - self._code_swept >= CODE_SECONDS:
            self._code_swept = now
            removed += self._sweep_code(lists, jobsets, handles)
        return removed

    def _sweep_code(self, lists: _Lists, jobsets: Docs, handles: Sequence[Handle]) -> list[str]:
        maps = lists.everywhere(lambda team: lists.cluster.list_metadata("ConfigMap", team, labels=OURS))
        needed = [handle.plan.snapshot.digest for handle in handles if handle.plan.snapshot]
        removed = []
        for team in sorted({str(one["metadata"]["namespace"]) for one in maps} - lists.unread):
            in_team = [one for one in jobsets if one["metadata"]["namespace"] == team]
            mine = [one for one in maps if one["metadata"]["namespace"] == team]
            unused = set(code.unused(mine, in_team, self.clock.now(), CODE_AGE, needed))
            for one in (one for one in mine if one["metadata"]["name"] in unused):
                if lists.removed("ConfigMap", one):
                    removed.append(f"{team}/{one['metadata']['name']}")
        return removed


@dataclass(slots=True)
class _Lists:
    """The objects of a cluster that one sweep could list."""

    cluster: Cluster
    known: Callable[[], Known]
    complain: Callable[[str], None]
    unread: set[str] = field(default_factory=set)  # namespaces that could not be listed: nothing there is removed

    def everywhere(self, listed: Callable[[str], Docs]) -> Docs:
        """List all namespaces or, without the permission, those that jobs of this store are or were in."""
        try:
            return listed("")
        except Unauthenticated:
            raise
        except Denied:
            known = self.known()
        plans = [*(handle.plan for handle in known.handles), *known.ended]
        found: Docs = []
        for team in sorted({plan.team for plan in plans}):
            try:
                found += listed(team)
            except Unauthenticated:
                raise
            except TpukitError as error:
                self.unread.add(team)
                self.complain(f"namespace {team} of {self.cluster.server} was not swept: {error}")
        return found

    def removed(self, kind: str, document: Doc) -> bool:
        """Delete exactly the object that was listed; return whether the request was accepted."""
        meta = document["metadata"]
        name, namespace, uid = str(meta["name"]), str(meta["namespace"]), str(meta["uid"])
        # A ConfigMap changes when a job begins to use it. A JobSet changes all the time, and its owner does not.
        version = str(meta.get("resourceVersion", "")) if kind == "ConfigMap" else ""
        try:
            self.cluster.delete(kind, name, namespace, foreground=kind == "JobSet", uid=uid, version=version)
        except Conflict:
            return False  # another one has its name, or it is in use
        except TpukitError as error:
            if not isinstance(error, Denied):  # a driver with the permission removes it
                self.complain(f"{kind} {namespace}/{name} was not removed: {error}")
            return False
        return True
