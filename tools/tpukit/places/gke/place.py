"""The gke place: submits JobSets, observes them, and reads the logs of their hosts.

A job has one JobSet, which lives through many attempts: JobSet restarts it after a failure, Kueue evicts and readmits
it. Both are counted, and the counters identify the attempt (attempts.py). What only a living pod shows is stored in the
attempt's record, so that another driver on another machine can continue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tpukit.core.clock import Clock
from tpukit.core.errors import Denied, Invalid, NotFound, Problem, TpukitError
from tpukit.jobs.plan import ClusterName, Plan
from tpukit.jobs.spec import durations
from tpukit.kube import Cluster
from tpukit.kube.documents import SLIM
from tpukit.kube.together import together
from tpukit.places.base import (
    Claim,
    FollowUp,
    Handle,
    HostView,
    Known,
    Line,
    Observation,
    Unmanaged,
    unclaimed,
)
from tpukit.places.capabilities import GKE
from tpukit.places.gke.clusters import Clusters
from tpukit.places.gke.eviction_costs import EvictionCosts
from tpukit.places.gke.evidence import Evidence
from tpukit.places.gke.jobsets import host_of, phase
from tpukit.places.gke.namespace import Lister, allowed
from tpukit.places.gke.observing import Observer
from tpukit.places.gke.pod_logs import PodLogs
from tpukit.places.gke.unattended import Renewal
from tpukit.teams import workloads
from tpukit.teams.waiting import Queues, never

if TYPE_CHECKING:
    from tpukit.places.gke.log_reading import LogReader
    from tpukit.places.gke.sending import Sending
    from tpukit.places.gke.sweeping import Sweeper
    from tpukit.places.workdirs import Workdirs


@dataclass(frozen=True, slots=True)
class _Connected:
    """Everything connected to one cluster."""

    lister: Lister
    pod_logs: PodLogs
    observer: Observer
    renewal: Renewal
    eviction_costs: EvictionCosts | None

    def close(self) -> None:
        self.pod_logs.close()
        self.lister.close()


class GkePlace:
    name = "gke"
    capabilities = GKE

    def __init__(
        self,
        root: Path,
        clock: Clock,
        sender: Callable[[], str],
        *,
        clusters: Clusters | None = None,
        log_workers: int = 4,
        connect: Callable[[Cluster, Clock], Lister] = Lister,
        workdirs: Workdirs | None = None,
        serving: Callable[[str], None] | None = None,
    ) -> None:
        """Initialize. `sender`: this store's mark on what it sends. `log_workers`: log-reading threads per cluster.

        `serving`: this process drives jobs for all, so it also writes what their eviction costs, and reports here if a
        cluster does not take it.
        """
        self._root, self._clock, self._sender = root, clock, sender
        self._log_workers, self._connect = log_workers, connect
        self.clusters = clusters or Clusters(clock)
        self._workdirs, self._serving = workdirs, serving
        self._connected: dict[int, _Connected] = {}
        self._sweepers: dict[int, Sweeper] = {}  # by cluster
        self._lock = threading.Lock()
        self._queues: dict[tuple[int, str], Queues] = {}  # by team, as they were when a job was first sent
        self._there: set[tuple[int, str, str, str]] = set()  # queues and priorities known to exist

    def close(self) -> None:
        """Stop all threads, without waiting for hanging ones."""
        with self._lock:
            connected, self._connected = self._connected, {}
        for one in connected.values():
            one.close()

    def prepare(self, plan: Plan) -> Plan:
        from tpukit.jobs.render import jobset as manifest

        plan = replace(plan, target=self.clusters.current())
        manifest.check(plan)
        return plan

    def taken(self, plan: Plan) -> frozenset[str]:
        """Return the names in use in the team's namespace, including those of other users."""
        return frozenset(
            one["metadata"]["name"] for one in self._cluster(plan).list("JobSet", plan.team, type=SLIM["JobSet"])
        )

    def check(self, plan: Plan) -> Sequence[Problem]:
        """Return what the cluster would reject, by a dry run."""
        from tpukit.jobs.render import documents

        cluster = self._cluster(plan)
        problems = list(_several_alone(plan))
        try:
            for document in documents(plan):
                cluster.apply(document, dry_run=True)
        except NotFound as error:
            hint = f"`tpu team add {plan.team}` creates the team, `tpu cluster addons` installs JobSet and Kueue"
            return [Problem("", f"{cluster.server} is not set up for the job: {error.message}", hint)]
        except Invalid as error:
            problems += error.problems
        if not self._exists(cluster, "LocalQueue", plan.team, plan.team):
            hint = f"`tpu team add {plan.team}` creates it, `tpu team list` lists the teams"
            problems.append(Problem("", f"team: {plan.team} has no queue", hint))
        elif why := self._never(cluster, plan):
            hint = f"`tpu team queue {plan.team}` shows its quota; ask an administrator of the cluster for more"
            problems.append(Problem("", f"tpu: the job can never run: {why}", hint))
        if plan.spec.priority and not self._exists(cluster, "WorkloadPriorityClass", plan.spec.priority):
            what = f"priority: the cluster has no {plan.spec.priority}"
            problems.append(Problem("", what, "write low, medium or high"))
        return problems

    def group(self, plan: Plan) -> str | None:
        return None if plan.cluster is None else self.clusters.context(plan.cluster)

    def check_code(self, plan: Plan) -> None:
        self._sending(plan).check_code(plan)

    def share_code(self, plan: Plan) -> str:
        return self._sending(plan).share_code(plan)

    def submit(self, handle: Handle) -> Mapping[str, Any]:
        if not handle.attempt.number:
            from tpukit.places.workdirs import Workdirs

            self._workdirs = self._workdirs or Workdirs()
            self._workdirs.claim(handle.plan, handle.plan.workdir)
        learned = self._sending(handle.plan).submit(handle)
        self._note_sent()
        return learned

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        if not handles:
            return []
        connection = self._connection(handles[0].plan)
        if not self._log_workers:
            connection.pod_logs.poll()
        return connection.observer.observe(handles)

    def follow_up(self, handle: Handle, what: FollowUp) -> None:
        connection = self._connection(handle.plan)
        if what.renew:
            state = connection.lister.fresh(handle.plan.team, handle.plan.id)
            if state.sender == self._sender():
                connection.renewal.renew(handle, state)
        if what.queue_cost and connection.eviction_costs:
            connection.eviction_costs.write(handle.plan.team, what.queue_cost)

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]:
        return self._log_reader(handle.plan).logs(handle, host, follow=follow)

    def tail(self, handle: Handle, host: str, size: int) -> Sequence[str]:
        return self._log_reader(handle.plan).tail(handle, host, size)

    def execute(self, handle: Handle, host: str, command: Sequence[str], *, terminal: bool) -> int:
        from tpukit.kube.executing import Streams
        from tpukit.places.gke.pod_log import Target

        plan, lister = handle.plan, self._connection(handle.plan).lister
        pods = lister.fresh(plan.team, plan.id).current_pods()
        pod = next((one for one in pods if host_of(one) == host and phase(one) == "Running"), None)
        if pod is None:
            raise NotFound(f"host {host} does not run", hint=f"`tpu job show {plan.id}` shows which hosts do")
        target = Target.of(lister.cluster, pod)
        streams = Streams(terminal=terminal)
        return lister.cluster.execute(target.pod, target.namespace, target.container, command, streams)

    def stop(self, handle: Handle, grace: float) -> None:
        self._sending(handle.plan).stop(handle, grace)

    def sweep(
        self, known: Callable[[], Known], complain: Callable[[str], None] = lambda text: None, claim: Claim = unclaimed
    ) -> Sequence[str]:
        """Sweep the current cluster, and those that jobs of this store were sent to."""
        if not (self._root / "sent").exists():  # a machine that never sent anything has nothing to sweep
            return []
        from tpukit.places.gke.sweeping import Sweeper

        removed: list[str] = []
        for name in self._swept(known()):
            try:
                cluster = self.clusters.open(name)
                sweeper = self._sweepers.setdefault(id(cluster), Sweeper(self._clock, self._sender))
                removed += sweeper.sweep(cluster, known, complain, claim)
            except NotFound:  # no context of this machine leads there
                continue
            except TpukitError as error:
                complain(f"cluster {name.server} was not swept: {error}")
        return removed

    def _swept(self, known: Known) -> list[ClusterName]:
        plans = [*(handle.plan for handle in known.handles), *known.ended]
        names = [plan.cluster for plan in plans if plan.cluster]
        with suppress(TpukitError):  # no current cluster
            names.insert(0, self.clusters.current())
        return list({name.uid or name.server: name for name in reversed(names)}.values())

    def workdir(self, plan: Plan, origin: int) -> str:
        return plan.workdir_of(origin)

    def notes(self, plan: Plan) -> Sequence[str]:
        notes = []
        if plan.spec.slices > 1 and plan.slice.hosts == 1:
            notes.append(f"Google documents multislice for multi-host slices only; {plan.slice.name} has one host")
        if plan.spec.tensorboard and not plan.settings.tensorboard:
            notes.append("TensorBoard data stays in the workdir: the setting `tensorboard` is not set")
        return notes

    def limit(self, plan: Plan) -> str:
        if limit := plan.spec.max.unattended:
            return f"its slices are released after {durations.write(limit)} without a driver (max.unattended)"
        return "its slices are held until the job ends, with or without a driver (max.unattended is 0s)"

    def lose(self, handle: Handle, host: str) -> None:
        raise Invalid("--lose: not possible on gke", hint="in a sandbox, `tpu sandbox faults` loses hosts")

    def forget(self, handle: Handle) -> str:
        plan = handle.plan
        context = plan.cluster.context if plan.cluster else ""
        where = f"--context {context} " if context else ""
        return (
            f"JobSet {plan.id} may be left in namespace {plan.team} of {plan.cluster.server if plan.cluster else '?'}: "
            f"`kubectl {where}delete jobset {plan.id} --namespace {plan.team}` removes it"
        )

    def unmanaged(self, teams: Sequence[str]) -> Sequence[Unmanaged]:
        from tpukit.places.gke import unmanaged

        return unmanaged.listed(self._current(), teams)

    def unmanaged_hosts(self, job: Unmanaged) -> Sequence[HostView]:
        from tpukit.places.gke import unmanaged

        return unmanaged.hosts(self._current(), job)

    def unmanaged_logs(self, job: Unmanaged, *, follow: bool = False) -> Iterator[Line]:
        from tpukit.places.gke import unmanaged

        return unmanaged.logs(self._current(), job, self._clock, follow=follow)

    def adopt(self, job: Unmanaged, owner: str) -> None:
        from tpukit.places.gke import unmanaged

        unmanaged.adopt(self._current(), job, owner)

    def stop_unmanaged(self, job: Unmanaged) -> None:
        from tpukit.places.gke import unmanaged

        unmanaged.stop(self._current(), job)

    def rerun_unmanaged(self, job: Unmanaged) -> None:
        from tpukit.places.gke.rerunning import Rerun

        Rerun(self._current(), self._clock).run(job)

    def _current(self) -> Cluster:
        return self.clusters.open(self.clusters.current())

    def _cluster(self, plan: Plan) -> Cluster:
        return self.clusters.open(self._name(plan))

    def _name(self, plan: Plan) -> ClusterName:
        return plan.cluster or self.clusters.current()

    def _connection(self, plan: Plan) -> _Connected:
        cluster = self._cluster(plan)
        with self._lock:
            known = self._connected.get(id(cluster))
            if known is None:
                lister = self._connect(cluster, self._clock)
                pod_logs = PodLogs(self._clock, self._log_workers)
                renewal = Renewal(cluster, self._clock)
                costs = EvictionCosts(cluster, self._clock, self._serving) if self._serving else None
                evidence = Evidence(lister, pod_logs, self._cache)
                observer = Observer(evidence, self._clock, self._sender, renewal, costs)
                known = self._connected[id(cluster)] = _Connected(lister, pod_logs, observer, renewal, costs)
        return known

    def _sending(self, plan: Plan) -> Sending:
        from tpukit.places.gke.sending import Sending

        return Sending(self._connection(plan).lister, self._root / "code", self._clock, self._sender)

    def _log_reader(self, plan: Plan) -> LogReader:
        from tpukit.places.gke.log_reading import LogReader

        return LogReader(self._connection(plan).lister, self._clock, self._cache, _archived)

    def _cache(self, handle: Handle, host: str) -> Path:
        """Return where a host's lines are stored on this machine."""
        return self._root / "runs" / handle.plan.id / f"attempt-{handle.attempt.number}" / host / "log"

    def _never(self, cluster: Cluster, plan: Plan) -> str:
        """Return why the team's queue can never admit the job; empty if it may or is unreadable.

        The queue's quota is read once, because many jobs may be sent at once.
        """
        key = id(cluster), plan.team
        if key not in self._queues:
            cluster_queues, flavors, local = together(
                *(partial(allowed, cluster, kind) for kind in ("ClusterQueue", "ResourceFlavor")),
                partial(allowed, cluster, "LocalQueue", plan.team),
            )
            self._queues[key] = Queues([], local or [], cluster_queues or [], flavors or [])
        return never(workloads.of_plan(plan), self._queues[key])

    def _exists(self, cluster: Cluster, kind: str, name: str, namespace: str = "") -> bool:
        """Return whether the object exists. Positive results are cached, because many jobs may be sent at once."""
        key = id(cluster), kind, namespace, name
        if key in self._there:
            return True
        try:
            cluster.get(kind, name, namespace)
        except NotFound:
            return False
        except Denied:  # without read access, the send itself reports it
            return True
        self._there.add(key)
        return True

    def _note_sent(self) -> None:
        try:
            self._root.mkdir(parents=True, exist_ok=True, mode=0o700)
            (self._root / "sent").touch()
        except OSError:
            return  # this machine then sweeps nothing


def _several_alone(plan: Plan) -> Iterator[Problem]:
    """Yield a problem for several slices of one host each, which GKE does not join.

    https://cloud.google.com/kubernetes-engine/docs/how-to/tpu-multislice#availability
    """
    if plan.spec.slices > 1 and plan.slice.hosts == 1:
        asked = f"{plan.spec.slices} of {plan.slice.name}"
        what = f"tpu: GKE does not join slices of one host, and the job asks for {asked}"
        yield Problem("", what, "write a slice of several hosts, or `slices: 1`")


def _archived(handle: Handle, host: str) -> Iterator[Line]:
    from tpukit.places.gke import archived_logs

    return archived_logs.read(handle, host)
