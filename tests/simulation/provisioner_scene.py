"""Node pools: replicas of the real provisioner, with the real leader election, over a simulated cluster and GKE."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulation import provisioner_events
from simulation.kube import TEAM, Client, Doc, true
from simulation.kube_jobsets import INDEX
from simulation.machines import Crashed, Machine
from simulation.node_pools import NodePools, PooledJobSets, PoolsClient
from simulation.plans import Event, JobPlan, SetPlan
from tpukit.core.errors import TpukitError, Transient
from tpukit.jobs.render.restarts import restarts
from tpukit.kernel.store import Holder
from tpukit.places.gke.jobsets import TERMINAL
from tpukit.provisioner import pool_names
from tpukit.provisioner.driver import Driver
from tpukit.provisioner.leader import Leadership
from tpukit.provisioner.pool_cache import Intervals
from tpukit.provisioner.view import MirrorView

if TYPE_CHECKING:
    from simulation.world import World

ZONES = ("us-central2-b", "us-central1-a")
SYSTEM, NAME = "tpu-provisioner-system", "tpu-provisioner"
UNUSED_SECONDS = 15 * 60.0
"""Seconds after which a pool without a pod is removed, even if it has had one."""
MISSING_SECONDS = 30 * 60.0
"""Seconds after which a pool is removed whose hosts do not come."""
DELETE_SECONDS = 5 * 60.0
"""Maximum seconds of a delete: GKE takes up to 200 s, and the decision, its cordon and its check take rounds."""
PINS: tuple[Doc, ...] = (
    {},
    {"nodeSelector": {"cloud.google.com/gke-nodepool": "my-pool"}},
    {"nodeSelector": {"kubernetes.io/hostname": "gke-my-host"}},
    {"nodeSelector": {"cloud.google.com/gke-boot-disk": "pd-ssd"}},
    {"affinity": {"key": "cloud.google.com/gke-nodepool", "operator": "In", "values": ["my-pool"]}},
    {"affinity": {"key": "colour", "operator": "In", "values": ["red"]}},
    {"nodeSelector": {"colour": "red"}},
)
"""Additional constraints of pods on their nodes. The provisioner sets the last label; no node has the others."""
UNKNOWN = 3
"""Index of a label that GKE may set as far as the provisioner knows: it may buy a pool before it learns otherwise."""


class LaggingView:
    """A process's mirrors of the cluster: slightly out of date, more so while the machine is cut off or suspended."""

    def __init__(self, machine: Machine, kube: PooledJobSets) -> None:
        self._machine, self._kube = machine, kube
        self._world = machine.world
        self._due = self._fresh = 0.0
        self._heard = 0.0  # the same time on the machine's clock
        self._all = (self,)
        self._objects: dict[str, tuple[Doc, ...]] = {}
        self._count = 0

    def jobsets(self) -> tuple[Doc, ...]:
        return self._look("JobSet")

    def leaders(self) -> tuple[Doc, ...]:
        return tuple(pod for pod in self._look("Pod") if pod["metadata"].get("labels", {}).get(INDEX) == "0")

    def nodes(self) -> tuple[Doc, ...]:
        ours = (pool_names.MANAGED_BY, pool_names.MANAGER)
        return tuple(node for node in self._look("Node") if ours in node["metadata"]["labels"].items())

    def config(self) -> Doc | None:
        return None

    def trouble(self, now: float) -> str:
        self._look("JobSet")
        return MirrorView.trouble(self, now)  # type: ignore[arg-type]

    def fresh(self) -> float:
        return self._heard

    def error(self) -> TpukitError | None:
        cut = self._machine.cut.get("kube", 0.0) > self._world.scheduler.now
        return Transient("the API server does not answer") if cut else None

    def pods(self) -> list[Doc]:
        def listed() -> list[Doc]:
            pods = self._kube.of("Pod").values()
            return [pod for pod in pods if pod["spec"].get("nodeName") and pod["status"]["phase"] not in TERMINAL]

        return self._machine.call("kube", "list placed pods", listed)

    def _look(self, kind: str) -> tuple[Doc, ...]:
        now, machine = self._world.scheduler.now, self._machine
        self._count += 1
        if machine.suspended > self._fresh > 0:  # its streams broke meanwhile, and reconnect after a while
            self._due = max(self._due, machine.suspended + 10 * self._world.spread(self._count))
        unreachable = max(machine.cut.get("kube", 0.0), machine.denied.get("kube", 0.0)) > now
        if now >= self._due and not unreachable:
            self._objects = {one: tuple(self._kube.of(one).values()) for one in ("JobSet", "Pod", "Node")}
            self._fresh, self._due = now, now + self._world.spread(self._count)
            self._heard = machine.clock.elapsed()
        return self._objects.get(kind, ())


class ProvisionerScene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.kube = PooledJobSets(self)
        self.gke = NodePools(self)
        self.asked: set[str] = set()  # uids of JobSets that a person deletes
        self.idle: dict[tuple[str, bool], float] = {}  # since when, by pool without a pod and whether it has all hosts
        self.gone: dict[str, float] = {}  # since when, by uid of a JobSet
        self._soon = False
        world.hosts = self.kube.runs  # type: ignore[assignment]
        for machine in world.machines:
            machine.denied.pop("kube", None)  # a replica without rights may lead, but sees no node pools
        for index, job in enumerate(world.plan.jobs):
            world.scheduler.spawn(lambda index=index, job=job: self.send(f"set{index}", job), job.at)  # type: ignore[misc]

    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        cluster = Client(machine, self.kube)
        holder = Holder(f"{machine.name}/{number}")
        leader = Leadership(cluster, SYSTEM, NAME, holder, machine.clock)  # type: ignore[arg-type]
        driver = Driver(
            cluster,  # type: ignore[arg-type]
            PoolsClient(machine, self.gke),
            LaggingView(machine, self.kube),
            leader,
            machine.clock,
            zones=ZONES,
            intervals=Intervals(5.0, 15.0, 60.0),
            seed=1,
        )
        leader.renew()
        self.world.scheduler.spawn(lambda: self._keep(machine, number, leader), 2.5)
        return driver.round, None

    def _keep(self, machine: Machine, number: int, leader: Leadership) -> None:
        from simulation.world import Stop

        scheduler = self.world.scheduler
        try:
            while machine.process == number and not machine.down:
                if machine.suspended > scheduler.now:
                    scheduler.sleep(machine.suspended - scheduler.now + 0.5)
                    continue
                leader.renew()
                scheduler.sleep(10.0 if leader.leading() else 5.0)  # as in the product
        except (Crashed, Stop):
            pass

    # JobSets of people

    def send(self, name: str, job: SetPlan | JobPlan) -> None:
        self.world.jobs[name] = self.kube.programs[name] = job
        self.world.trace.add("person", f"sends {name}")
        if (TEAM, name) not in self.kube.of("JobSet"):
            self.kube.create(jobset(name, job))

    def pin(self, name: str) -> str:
        return "unknown" if getattr(self.kube.programs.get(name), "pin", 0) == UNKNOWN else ""

    def slices(self) -> int:
        """Return the number of slices needed, in total, because jobs may run on each other's pools."""
        return sum(int(doc["spec"]["replicatedJobs"][0]["replicas"]) for doc in self._unfinished())

    def gone_since(self, uid: str) -> float | None:
        for doc in self.kube.of("JobSet").values():
            if doc["metadata"]["uid"] == uid and not (true(doc, "Completed") or true(doc, "Failed")):
                return None
        return self.gone.setdefault(uid, self.world.scheduler.now)

    def schedule_soon(self) -> None:
        if not self._soon:
            self._soon = True
            self.world.scheduler.spawn(self._schedule, 1.0)

    def _schedule(self) -> None:
        self._soon = False
        self.kube.schedule()
        for doc in self.kube.of("JobSet").values():
            self.gone_since(doc["metadata"]["uid"])
        self._check_idle()

    def _check_idle(self) -> None:
        """Check that no pool stays without a pod for long, once the faults are over."""
        now, calm = self.world.scheduler.now, self.world.scheduler.start + self.world.plan.calm
        idle = [one for one in self.gke.own() if self.gke.pool_docs[one].get("ready") and not self.kube.on(one)]
        whole = {name: bool(self.kube.hosts(name)) for name in idle}
        self.idle = {(name, whole[name]): self.idle.get((name, whole[name]), now) for name in idle}
        calm = max(calm, *(one.suspended for one in self.world.machines if not one.down), 0.0)
        for (name, is_whole), since in self.idle.items():
            failed = sum(at > since for at in self.gke.failed_deletes.get(name, ()))  # GKE, not the provisioner
            most = (UNUSED_SECONDS if is_whole else MISSING_SECONDS) + (1 + failed) * DELETE_SECONDS
            if now - max(since, calm) > most:
                self.world.acting = "provisioner"
                without = "a pod" if is_whole else "all of its hosts"
                self.world.violate("waste", f"keeps {name}, which has been without {without} for {now - since:.0f} s")

    # World

    def happen(self, event: Event) -> bool:
        return provisioner_events.happen(self.world, self, event)

    def calm(self) -> None:
        self.gke.short = self.gke.no_quota = self.gke.refusing = 0.0
        self.gke.short_in.clear()
        self.kube.closed = 0.0
        for index, job in enumerate(self.world.plan.jobs):
            if (pin := getattr(job, "pin", 0)) not in (0, len(PINS) - 1):  # its person gives up
                after = UNUSED_SECONDS + 2 * DELETE_SECONDS + 480.0 if pin == UNKNOWN else 300.0
                self.world.scheduler.spawn(lambda name=f"set{index}": provisioner_events.delete(self, name), after)  # type: ignore[misc]
        self.world.scheduler.spawn(self._look_around, 60.0)

    def _look_around(self) -> None:
        while True:
            self._schedule()
            self.world.scheduler.sleep(60.0)

    def may_lose(self, machine: Machine) -> bool:
        return True

    def over(self) -> bool:
        return len(self.world.jobs) == len(self.world.plan.jobs) and not self._unfinished() and not self.gke.own()

    def _unfinished(self) -> list[Doc]:
        return [doc for doc in self.kube.of("JobSet").values() if not (true(doc, "Completed") or true(doc, "Failed"))]

    def judge(self) -> None:
        world = self.world
        for doc in self._unfinished():
            world.violate("stuck", f"{doc['metadata']['name']} is {self.kube.phase[doc['metadata']['uid']]}")
        for name in self.gke.own():
            status = self.gke.pool_docs[name]["status"]
            world.violate("leak", f"node pool {name} is left, {status}")


def jobset(name: str, job: JobPlan) -> Doc:
    pin = PINS[getattr(job, "pin", 0)]
    hosts, topology = (1, "2x2x1") if job.tpu == "v4-8" else (2, "2x2x2")
    selector = {
        "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
        "cloud.google.com/gke-tpu-topology": topology,
        **pin.get("nodeSelector", {}),
    }
    spec: Doc = {"nodeSelector": selector, "containers": [{"resources": {"limits": {"google.com/tpu": 4}}}]}
    if expression := pin.get("affinity"):
        terms = {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}
        spec["affinity"] = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    template = {"spec": {"parallelism": hosts, "template": {"spec": spec}}}
    rules = [{"name": one.name, "action": one.action} for one in restarts("pre")]
    return {
        "kind": "JobSet",
        "metadata": {"name": name, "namespace": TEAM, "annotations": {}, "labels": {}},
        "spec": {
            "replicatedJobs": [{"name": "slice", "replicas": job.slices, "template": template}],
            "failurePolicy": {"maxRestarts": job.restarts, "rules": rules},
        },
    }
