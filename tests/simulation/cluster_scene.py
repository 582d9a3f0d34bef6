"""Jobs on a simulated cluster: the real driver, the real gke place and its sweeps on each machine."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from simulation import cluster_events, people, records
from simulation.jobs_scene import JobsScene
from simulation.kube import TEAM, Client, DeadCluster
from simulation.kube_jobsets import JobSets
from simulation.machines import Machine
from simulation.plans import Event, JobPlan
from support.fake_cluster import DirectLister
from tpukit.core.errors import TpukitError
from tpukit.jobs import plan as plans
from tpukit.jobs.plan import ClusterName, Snapshot
from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.jobs.records import Attempt, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kube import Context
from tpukit.places.gke.clusters import Clusters, Kubeconfig
from tpukit.places.gke.place import GkePlace

if TYPE_CHECKING:
    from simulation.world import World

DIGEST = "d" * 64
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": TEAM})


class ClusterTruth(records.Truth):
    """Ground truth of JobSets, judged by counts.

    A JobSet restarts by itself and reports how often, but not in which order.
    """

    def _check_end(self, job: Job, attempt: Attempt) -> None:
        world, runs = self._world, self._world.hosts
        run = runs.began.get((job.id, attempt.number))
        if run is not None and runs.healthy(run) and job.id not in world.asked:
            world.violate("evidence", f"ends attempt {attempt.number} of {job.id} ({attempt.reason}), which is healthy")
        causes = [one.cause for one in runs.every if one.job == job.id]
        charged = [one for one in job.attempts if one.reason and MEANINGS[one.reason].budget is Budget.USER]
        if len(charged) > causes.count("mistake"):
            world.violate("budget", f"charges {attempt.reason} for attempt {attempt.number} of {job.id}: {causes}")
        if attempt.reason is Reason.CANNOT_START:
            world.violate("evidence", f"gives up attempt {attempt.number} of {job.id}: {attempt.detail}")
        if attempt.reason is Reason.DONE and "done" not in causes:
            world.violate("evidence", f"calls attempt {attempt.number} of {job.id} done: {causes}")

    def _check_outcome(self, job: Job) -> None:
        super()._check_outcome(job)
        if job.id not in self._world.scene.forgotten:  # type: ignore[attr-defined]
            for run in self._world.hosts.of_job(job.id):
                self._world.violate("lost", f"{job.id} ends while attempt {run.number} runs")


class ClusterScene(JobsScene):
    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.kube = JobSets(world)
        self.programs = self.kube.programs
        self.forgotten: set[str] = set()
        world.hosts = self.kube.runs  # type: ignore[assignment]
        world.store = ClusterTruth(world, world.home.store)

    def reach(self, machine: Machine) -> tuple[Any, dict[str, Any]]:
        cluster = Client(machine, self.kube)
        store = records.StoreOf(machine, self.world.store)
        dead = Client(machine, DeadCluster(self.world))
        contexts = [Context("simulated", cluster.server), Context("dead", dead.server)]
        reached = {"simulated": cluster, "dead": dead}
        kubeconfig = Kubeconfig(lambda: contexts, lambda: "simulated", reached.__getitem__)  # type: ignore[arg-type]
        place = GkePlace(
            machine.root,
            machine.clock,
            lambda: store.sender,
            clusters=Clusters(machine.clock, kubeconfig),
            log_workers=0,
            connect=DirectLister,
            serving=(lambda text: None) if self.world.plan.weighs else None,
        )
        return store, {"gke": place}

    def send_due(self, machine: Machine, store: Any, places: Any, driver: Any) -> None:
        scheduler = self.world.scheduler
        for index, job in enumerate(self.world.plan.jobs):
            if index not in self.sent and scheduler.now - scheduler.start >= job.at:
                try:
                    self._send(machine, store, places, driver, index, job)
                except TpukitError as error:
                    self.world.trace.add(machine.name, f"send: {error.message[:80]}")

    def _send(self, machine: Machine, store: Any, places: Any, driver: Any, index: int, job: JobPlan) -> None:
        from tpukit.cli import context
        from tpukit.jobs.use_cases import submission

        made = _plan(index, job)
        if made.id in {one.id for one in self.world.store.jobs()}:  # an earlier attempt, whose process died afterwards
            self.sent.add(index)
            return
        self.programs[made.id] = job
        made = self.world.jobs[made.id] = places["gke"].prepare(made)
        if made.snapshot:
            folder = machine.root / "code" / made.snapshot.digest
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "train").write_text("train\n")
        if withheld := [one.seconds for one in self.world.plan.events if one.kind == "withhold"]:
            machine.denied["kube"] = self.world.scheduler.now + withheld[0]
        with people.at(machine, store, places, driver.leases.holder):
            submission.record(context.session(), made, "ada")
        self.sent.add(index)
        self.world.trace.add(machine.name, f"sent {made.id}")

    def happen(self, event: Event) -> bool:
        return cluster_events.happen(self.world, self, event)

    def calm(self) -> None:
        self.kube.closed = 0.0
        if self.kube.orphans:  # so that one of the remaining machines sweeps
            self.world.scheduler.spawn(lambda: cluster_events.have_sent(self.world), 1.0)

    def may_lose(self, machine: Machine) -> bool:
        """Return False for the only machine with a job's code, which waits for it until the cluster has the code."""
        return len(self.sent) == len(self.world.plan.jobs) and self.has_code()

    def has_code(self) -> bool:
        return bool(self.kube.of("ConfigMap")) or not any(job.code for job in self.world.plan.jobs)

    def held(self, job_id: str) -> list[str]:
        return [] if self.kube.leaving(job_id) else [name for name in self.left() if name == f"JobSet {job_id}"]

    def left(self) -> list[str]:
        return self.kube.own(self.world.home.sender)


@cache
def _plan(index: int, job: JobPlan) -> plans.Plan:
    fields: dict[str, Any] = {"slices": job.slices, "rule": job.rule, "max": {"restarts": job.restarts}}
    given = {"name": f"job{index}", "tpu": job.tpu, "command": ["train"], "image": "i:1", "capacity": "spot"}
    name = ClusterName("simulated", JobSets.server, "uid-of-simulated")
    made = plans.make(JobSpec.from_json({**given, **fields}), SETTINGS, "gke", target=name)
    return replace(made, snapshot=Snapshot(DIGEST, "", False)) if job.code else made
