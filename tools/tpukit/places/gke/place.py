"""The gke place: sends JobSets, says what became of them, keeps what their hosts printed.

A job has one JobSet, which lives through many attempts: JobSet restarts it after a failure, Kueue takes it out and
brings it back. Both count, and the counts say which attempt it is at, so nothing has to be remembered to find it again.
What only a living pod can tell (how it ended, what it printed) is kept on this machine as it is seen.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from pathlib import Path

from tpukit import stage
from tpukit.clock import Clock
from tpukit.errors import Conflict, Denied, Invalid, NotFound, Problem, TpukitError, Transient
from tpukit.kube import Cluster, Docs
from tpukit.places.base import Handle, Line, Observation
from tpukit.places.gke import code, keeper
from tpukit.places.gke.clusters import Clusters
from tpukit.places.gke.files import Files, has_sent, pod_host, sender
from tpukit.places.gke.keeper import Keeper
from tpukit.places.gke.look import SENDER, Found
from tpukit.places.gke.observing import LAST_LINES_SECONDS, Observer
from tpukit.places.gke.sight import Sight
from tpukit.plan import UPLOADER_JOB, Plan
from tpukit.render import documents

FOLLOW_SECONDS = 0.3


class GkePlace:
    name = "gke"
    on_this_machine = False

    def __init__(self, root: Path, clock: Clock) -> None:
        self._root = root
        self._shelf = root / "code"
        self._clock = clock
        self.clusters = Clusters()
        self._sight = Sight(self.clusters, clock)
        self._keeper = Keeper()
        self._observer = Observer(root, self._sight, self._keeper, clock)

    def check(self, plan: Plan) -> None:
        """Ask the cluster whether it would take the job. Nothing is created."""
        cluster = self._sight.cluster(plan)
        for document in documents(plan):
            try:
                cluster.apply(document, dry_run=True)
            except NotFound as error:
                hint = f"`tpu team add {plan.team}` makes the team, `tpu cluster addons` installs JobSet and Kueue"
                raise NotFound(f"{cluster.server} has no place for the job: {error.message}", hint=hint) from error
        problems = []
        if not _there(cluster, "LocalQueue", plan.team, plan.team):
            hint = f"`tpu team add {plan.team}` makes it, `tpu team list` shows those that there are"
            problems.append(Problem("", f"team: {plan.team} has no queue", hint))
        if plan.spec.priority and not _there(cluster, "WorkloadPriorityClass", plan.spec.priority):
            what = f"priority: the cluster has no {plan.spec.priority}"
            problems.append(Problem("", what, "write low, medium or high"))
        if problems:
            raise Invalid(problems)

    def taken(self, plan: Plan) -> frozenset[str]:
        """Names in use in the team's namespace, whoever uses them."""
        return frozenset(one["metadata"]["name"] for one in self._sight.cluster(plan).list("JobSet", plan.team))

    def submit(self, handle: Handle) -> None:
        plan, attempt = handle.plan, handle.attempt
        cluster = self._sight.cluster(plan)
        found = self._sight.look(plan, fresh=True).find(plan.id)
        if found.jobset is not None:
            self._check_ours(found, plan)
            if found.attempt >= attempt.number and not found.leaving:
                return  # JobSet or Kueue has begun it, or we did before
            if not found.finished and not found.leaving:
                raise Conflict(f"JobSet {plan.id} is at attempt {found.attempt} and has not ended")
            cluster.delete("JobSet", plan.id, plan.team, foreground=True)
        if found.jobset is not None or found.pods:
            raise Transient(f"hosts of attempt {found.attempt} of {plan.id} are still leaving")
        parts = self._send_code(cluster, plan.team, plan.snapshot.digest) if plan.snapshot else 0
        for document in documents(plan, attempt, parts):
            document["metadata"]["annotations"][SENDER] = sender(self._root)
            # Created and not applied: whoever else had the same idea in this moment has the name, and we do not.
            cluster.create(document)
        self._sight.forget(plan)

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation]:
        try:
            return [self._observer.observe(handle) for handle in handles]
        except OSError as error:
            hint = "jobs run on without it; make room, and they are found again"
            raise Transient(f"what hosts say cannot be written to {self._root}: {error}", hint=hint) from error

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]:
        plan = handle.plan
        names = [host] if host else [*plan.host_names, f"{plan.id}-{UPLOADER_JOB}-0-0"]
        files = Files.of(self._root, handle)
        positions = dict.fromkeys(names, 0)
        while True:
            ended = self._refresh(handle, files, names, follow=follow)
            for name in names:
                lines, positions[name] = keeper.read(files.host(name), positions[name], whole=follow and not ended)
                yield from (Line(name, line) for line in lines)
            if ended or not follow:
                return
            self._clock.sleep(FOLLOW_SECONDS)

    def stop(self, handle: Handle, grace: float) -> None:
        plan = handle.plan
        cluster = self._sight.cluster(plan)
        found = self._sight.look(plan, fresh=True).find(plan.id)
        if found.jobset is not None:
            self._check_ours(found, plan)
            if found.finished:
                return
            if not found.leaving:
                cluster.delete("JobSet", plan.id, plan.team)
        if grace < plan.spec.max.grace:  # what hangs is not given the time to save
            for pod in found.pods:
                cluster.delete("Pod", pod["metadata"]["name"], plan.team, grace=max(1, int(grace)))
        self._sight.forget(plan)

    def sweep(self, known: Callable[[], Sequence[Handle]]) -> Sequence[str]:
        """Removes JobSets that this store sent, that run, and that it has no active job for. Others' are others'."""
        if not has_sent(self._root):
            return []
        try:
            cluster = self.clusters.open(self.clusters.current())
            found = _jobsets(cluster, known)
        except TpukitError:  # no cluster, or none that answers: nothing can be said of what runs there
            return []
        active = {handle.plan.id for handle in known()}
        removed = []
        for jobset in found:
            name, namespace = jobset["metadata"]["name"], jobset["metadata"]["namespace"]
            one = Found(jobset)
            if one.sender == sender(self._root) and not one.finished and name not in active:
                cluster.delete("JobSet", name, namespace)
                removed.append(f"{namespace}/{name}")
        return removed

    def _send_code(self, cluster: Cluster, team: str, digest: str) -> int:
        """Bring code to the team's namespace, unless it is there, from whatever machine; the number of its parts."""
        there = cluster.list("ConfigMap", team, labels=code.selector(digest))
        if not code.complete(there, digest):
            made = code.config_maps(team, digest, code.pack(stage.require(self._shelf, digest)))
            for name in code.in_the_way(there, made):
                cluster.delete("ConfigMap", name, team)
            for document in made:
                with suppress(Conflict):  # it is there: from a start that was cut off, or from somebody else just now
                    cluster.create(document)
            there = cluster.list("ConfigMap", team, labels=code.selector(digest))
        parts = code.complete(there, digest)
        if parts is None:
            raise Transient(f"the code {digest[:12]} is not yet complete in {team}")
        cluster.patch("ConfigMap", code.names(digest, 1)[0], code.mark_used(self._clock.now()), team)
        return parts

    def _refresh(self, handle: Handle, files: Files, names: Sequence[str], *, follow: bool) -> bool:
        """Bring the kept logs up to now; whether nothing more will come."""
        found = self._sight.look(handle.plan).find(handle.plan.id)
        if found.jobset is None or handle.attempt.number < found.attempt:
            return True
        if handle.attempt.number > found.attempt:
            return False
        cluster = self._sight.cluster(handle.plan)
        pods = [pod for pod in found.current_pods() if pod_host(pod) in names]
        for pod in pods:
            if pod.get("status", {}).get("phase", "Pending") != "Pending":
                (self._keeper.follow if follow else keeper.fetch)(cluster, pod, files.host(pod_host(pod)))
        if found.finished:
            self._keeper.settle(pods, LAST_LINES_SECONDS)
        return found.finished

    def _check_ours(self, found: Found, plan: Plan) -> None:
        if found.sender != sender(self._root):
            raise Conflict(
                f"JobSet {plan.id} in {plan.team} was sent by somebody else",
                hint="it is theirs to stop; send yours under another name: --set name=NAME",
            )


def _there(cluster: Cluster, kind: str, name: str, namespace: str = "") -> bool:
    try:
        cluster.get(kind, name, namespace)
    except NotFound:
        return False
    except Denied:  # who may not look finds out when it is sent
        return True
    return True


def _jobsets(cluster: Cluster, known: Callable[[], Sequence[Handle]]) -> Docs:
    ours = "app.kubernetes.io/managed-by=tpukit"
    try:
        return cluster.list("JobSet", labels=ours)
    except Denied:  # whoever may not look everywhere looks where their jobs are
        teams = sorted({handle.plan.team for handle in known()})
        return [one for team in teams for one in cluster.list("JobSet", team, labels=ours)]
