"""Node pools: replicas of the provisioner that elect a leader, over a simulated cluster and GKE."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from simulation.machines import Machine, Remote
from tpukit.errors import Conflict, NotFound
from tpukit.provisioner import pool_names
from tpukit.provisioner.driver import Driver
from tpukit.provisioner.leader import Leadership
from tpukit.provisioner.pool_cache import Intervals
from tpukit.store import Holder
from unit.provisioner_world import V4_16, ZONES, SimulatedCluster
from unit.simulated_gke import Doc, SimulatedGke

if TYPE_CHECKING:
    from simulation.plans import Event
    from simulation.world import World

STEP = 5.0
KUBE_CHANGES = frozenset({"create", "patch", "call"})
GKE_CHANGES = frozenset({"create_pool", "delete_pool"})


class Cluster(SimulatedCluster):
    """With Lease objects."""

    def __init__(self, clock: Any) -> None:
        super().__init__(clock)
        self.leases: dict[str, Doc] = {}
        self.versions = 0

    def get(self, kind: str, name: str, namespace: str = "", **_: Any) -> Doc:
        if name not in self.leases:
            raise NotFound(f"{kind} {name} is not there")
        return _copied(self.leases[name])

    def create(self, document: Mapping[str, Any], **more: Any) -> Doc:
        if document["kind"] != "Lease":
            return super().create(document, **more)
        name = document["metadata"]["name"]
        if name in self.leases:
            raise Conflict(f"{name} exists")
        return self._write(name, dict(document))

    def call(self, method: str, path: str, *, body: Doc, **_: Any) -> Doc:
        name = path.rpartition("/")[2]
        version = body["metadata"].get("resourceVersion")
        if version != self.leases[name]["metadata"]["resourceVersion"]:
            raise Conflict(f"{name} was changed")
        return self._write(name, body)

    def _write(self, name: str, document: Doc) -> Doc:
        self.versions += 1
        self.leases[name] = _copied(document)
        self.leases[name]["metadata"]["resourceVersion"] = str(self.versions)
        return self.leases[name]


class Gke(SimulatedGke):
    """The truth about pools that are deleted."""

    scene: PoolsScene

    def _delete(self, name: str) -> Any:
        self.scene.check_delete(name)
        return super()._delete(name)


class View:
    """The mirror of the cluster that a machine has: it is read without a call."""

    def __init__(self, machine: Machine, cluster: Cluster) -> None:
        self._machine, self._cluster = machine, cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def trouble(self, now: float) -> str:
        cut = self._machine.cut.get("kube", 0.0) > self._machine.world.scheduler.now
        return "the cluster is not read just now" if cut else ""


class PoolsScene:
    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster, self.gke = Cluster(world.clock), Gke(world.clock, world.plan.seed)  # type: ignore[arg-type]
        self.gke.scene = self
        self.gke.came, self.gke.went = self.cluster.add_hosts, self.cluster.remove_hosts
        self.cluster.configure(removal_delay="10", minimum_age="20", suspended_grace="60")
        dice = random.Random(world.plan.seed)
        self.ends = {f"set-{index}": dice.choice((100.0, 300.0, 900.0)) for index in range(dice.choice((1, 2, 2)))}
        for name in self.ends:
            self.cluster.send(name, jobs=dice.choice((1, 1, 2)))
        self.pinned = dice.choice(("", "", "", "cloud.google.com/gke-nodepool", "kubernetes.io/hostname"))
        if self.pinned:  # its pod fits no pool that the provisioner could make
            self.cluster.send("pinned", selector={**V4_16, self.pinned: "another"})
        self.idle: dict[str, float] = {}  # pools without a pod, and since when
        world.scheduler.spawn(self._pass_time, STEP)

    def process(self, machine: Machine, number: int) -> tuple[Callable[[], None], Any]:
        kube = Remote(machine, "kube", self.cluster, KUBE_CHANGES)
        gke = Remote(machine, "cloud", self.gke, GKE_CHANGES)
        holder = Holder(f"{machine.name}/{number}")
        leader = Leadership(kube, "tpukit", "provisioner", holder, machine.clock)  # type: ignore[arg-type]
        driver = Driver(
            kube,  # type: ignore[arg-type]
            gke,  # type: ignore[arg-type]
            View(machine, self.cluster),  # type: ignore[arg-type]
            leader,
            machine.clock,
            zones=ZONES,
            intervals=Intervals(5.0, 5.0, 5.0),
            seed=1,
        )

        def step() -> None:
            leader.renew()
            if leader.leading():
                driver.round()

        return step, leader

    def happen(self, event: Event) -> bool:
        names = sorted(self.ends)
        name = names[event.which % len(names)]
        there = ("research", name) in self.cluster._jobsets
        if event.kind == "stop" and there:
            self.cluster.delete(name)
        elif event.kind in ("newer", "resume") and there:
            self.cluster.suspend(name)
            self.world.scheduler.sleep(event.seconds or 100.0)
            if ("research", name) in self.cluster._jobsets:
                self.cluster.suspend(name, on=False)
        elif event.kind == "preempt" and self.gke.pool_docs:
            pools = sorted(one for one, doc in self.gke.pool_docs.items() if doc["status"] == "RUNNING")
            if pools:
                pool = pools[event.which % len(pools)]
                self.cluster.remove_hosts(pool)
                self.world.scheduler.sleep(60.0)
                if pool in self.gke.pool_docs and self.gke.pool_docs[pool]["status"] == "RUNNING":
                    from unit.simulated_gke import _read

                    self.cluster.add_hosts(_read(self.gke.pool_docs[pool]))
        elif event.kind == "short":
            self.gke.stock[ZONES[0], "on-demand"] = 0
            self.world.scheduler.sleep(event.seconds)
            self.gke.stock.clear()
        elif event.kind == "quota":
            self.gke.breaks[""] += 1
        elif event.kind == "foreign":
            body = {"name": f"theirs-{event.which}", "initialNodeCount": 1, "locations": list(ZONES)}
            body["config"] = {"machineType": "ct4p-hightpu-4t", "labels": {"owner": "eve"}}
            self.gke.pool_docs.setdefault(body["name"], {"body": body, "status": "RUNNING", "message": ""})
        else:
            return False
        return True

    def calm(self) -> None:
        self.gke.stock.clear()
        self.gke.breaks.clear()

    def may_lose(self, machine: Machine) -> bool:
        return True

    def over(self) -> bool:
        return not self._unfinished() and not self._ours()

    def judge(self) -> None:
        for name in self._unfinished():
            self.world.violate("stuck", f"JobSet {name} has not ended: {self.cluster.running(name)} leaders run")
        for name in self._ours():
            self.world.violate("leak", f"pool {name} is left")

    def check_delete(self, name: str) -> None:
        world, doc = self.world, self.gke.pool_docs.get(name)
        if doc is None:
            return
        if pool_names.JOBSET not in doc["body"]["config"]["labels"]:
            world.violate("foreign", f"deletes pool {name} of another user")
        hosts = {
            node
            for node, one in self.cluster._nodes.items()
            if one["metadata"]["labels"].get("cloud.google.com/gke-nodepool") == name
        }
        for pod in self.cluster._pods.values():
            if pod["spec"].get("nodeName") in hosts and pod["status"]["phase"] == "Running":
                world.violate("healthy", f"deletes pool {name}, on which {pod['metadata']['name']} runs")

    def _unfinished(self) -> list[str]:
        sets = self.cluster._jobsets
        return [
            name
            for (_, name), doc in sets.items()
            if name != "pinned" and (not doc["status"].get("conditions") or _suspended(doc))
        ]

    def _ours(self) -> list[str]:
        docs = self.gke.pool_docs.items()
        return [name for name, doc in docs if pool_names.JOBSET in doc["body"]["config"]["labels"]]

    def _check_idle(self) -> None:
        """No pool is paid for without a pod for longer than half an hour and the clocks' error."""
        now = self.world.scheduler.now
        used = {self.cluster.pool_of(pod) for pod in self.cluster._pods.values()}
        idle = [one for one in self._ours() if self.gke.pool_docs[one]["status"] == "RUNNING" and one not in used]
        self.idle = {name: self.idle.get(name, now) for name in idle}
        behind = max(0.0, *(-one.plan.offset for one in self.world.machines))  # ages are measured on replicas' clocks
        for name, since in self.idle.items():
            if now - since > 1800 + behind and not self.world.troubled:
                self.world.acting = "world"
                self.world.violate("waste", f"pool {name} has had no pod for half an hour")

    def _pass_time(self) -> None:
        ran: dict[str, float] = dict.fromkeys(self.ends, 0.0)
        while True:
            self.gke.tick()
            self.cluster.schedule()
            self._check_idle()
            for (_, name), doc in list(self.cluster._jobsets.items()):
                if name == "pinned":
                    continue
                if doc["status"].get("conditions") and not _suspended(doc):
                    continue
                if len(doc["_jobs"]) == self.cluster.running(name):
                    ran[name] += STEP
                    if ran[name] >= self.ends[name]:
                        self.cluster.finish(name)
            self.world.scheduler.sleep(STEP)


def _copied(lease: Doc) -> Doc:
    return {**lease, "metadata": {**lease["metadata"]}, "spec": {**lease["spec"]}}


def _suspended(doc: Doc) -> bool:
    return any(one["type"] == "Suspended" for one in doc["status"].get("conditions", ()))
