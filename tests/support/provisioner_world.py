"""JobSets, leaders, hosts and a scheduler in memory, a simulated GKE, and a provisioner that drives them.

The cluster behaves like Kubernetes 1.36 and JobSet 0.12 as far as the provisioner can see it: a leader for each Job,
scheduled to a free pool with its labels, pods that restart with a new uid, JobSets that end and disappear.
"""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from support.simulated_gke import SimulatedGke
from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, LeaseLost, NotFound, Transient
from tpukit.google.gke import NodePool
from tpukit.kernel.store import Holder, Lease
from tpukit.provisioner import pool_names, pools
from tpukit.provisioner.driver import Driver
from tpukit.provisioner.metrics import Metrics
from tpukit.provisioner.pool_cache import Intervals

Doc = dict[str, Any]
ZONES = ("us-central2-b",)
V4_16 = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
    "cloud.google.com/gke-tpu-topology": "2x2x2",
}


class Alone:
    """A leader without rivals, until a test changes that."""

    def __init__(self) -> None:
        self.is_leading = True

    def leading(self) -> bool:
        return self.is_leading

    def hold(self, name: str) -> Lease | None:
        return Lease(name, Holder("me"), 0.0, 1) if self.is_leading else None

    def lost(self, name: str) -> None: ...

    def release(self, *names: str) -> None: ...

    def resign(self, *names: str) -> None: ...

    def check(self, lease: Lease) -> float:
        if not self.is_leading:
            raise LeaseLost("another replica is the leader now")
        return 10.0

    def close(self) -> None: ...


class SimulatedCluster:
    """The cluster that the provisioner calls and watches."""

    server = "https://fake.example"

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._jobsets: dict[tuple[str, str], Doc] = {}
        self._pods: dict[str, Doc] = {}
        self._nodes: dict[str, Doc] = {}
        self._config: Doc | None = None
        self.events: dict[str, Doc] = {}
        self.foreign: list[Doc] = []
        self.calls: list[str] = []
        self.away = False
        self.before: Callable[[str], None] = lambda what: None  # called before each write
        self._numbers = itertools.count(1)

    # Watched objects

    def jobsets(self) -> tuple[Doc, ...]:
        return tuple(self._jobsets.values())

    def leaders(self) -> tuple[Doc, ...]:
        return tuple(self._pods.values())

    def nodes(self) -> tuple[Doc, ...]:
        return tuple(self._nodes.values())

    def config(self) -> Doc | None:
        return self._config

    def trouble(self, now: float) -> str:
        return "the cluster cannot be read now" if self.away else ""

    def pods(self) -> list[Doc]:
        self.calls.append("list pods")
        return [pod for pod in (*self._pods.values(), *self.foreign) if pod["spec"].get("nodeName")]

    # Calls

    def create(self, document: Mapping[str, Any], **_: Any) -> Doc:
        self._fenced(f"create {document['kind']}")
        if self.away:
            raise Transient("the API server is away")
        name = document["metadata"]["name"]
        if name in self.events:
            raise Conflict(f"{name} exists")
        self.events[name] = copy.deepcopy(dict(document))
        return self.events[name]

    def _fenced(self, what: str) -> None:
        self.before(what)
        fence.check()
        self.calls.append(what)

    def patch(self, kind: str, name: str, change: Mapping[str, Any], namespace: str = "", **expected: str) -> Doc:
        self._fenced(f"patch {kind}")
        if kind == "Node":
            return self._patch_node(name, change, expected["uid"])
        jobset = self._jobsets.get((namespace, name))
        if jobset is None:
            raise NotFound(f"{kind} {name} is gone")
        if change["metadata"]["uid"] != jobset["metadata"]["uid"]:
            raise Conflict("another uid")
        for key, value in change["metadata"]["annotations"].items():
            jobset["metadata"]["annotations"].pop(key, None)
            if value is not None:
                jobset["metadata"]["annotations"][key] = value
        return jobset

    def _patch_node(self, name: str, change: Mapping[str, Any], uid: str) -> Doc:
        if name not in self._nodes:
            raise NotFound(f"node {name} is gone")
        node = self._nodes[name]
        if node["metadata"]["uid"] != uid:
            raise Conflict(f"node {name} is another one by now")
        annotations = {**node["metadata"].get("annotations", {}), **change["metadata"]["annotations"]}
        node["metadata"]["annotations"] = {key: value for key, value in annotations.items() if value is not None}
        node["spec"] = {key: value for key, value in change["spec"].items() if value is not None}
        return node

    # Events in the cluster

    def configure(self, **data: str) -> None:
        meta = {"name": "c", "uid": "c", "resourceVersion": str(next(self._numbers))}
        self._config = {"metadata": meta, "data": {key.replace("_", "-"): value for key, value in data.items()}}

    def send(
        self,
        name: str,
        jobs: int = 1,
        selector: Mapping[str, str] | None = None,
        chips: int = 4,
        hosts: int = 2,
        *,
        namespace: str = "research",
        annotations: Mapping[str, str] | None = None,
        replicated: Sequence[tuple[str, Mapping[str, str], int, int]] = (),
    ) -> str:
        """Add an admitted JobSet and return its uid. `replicated` adds jobs: name, selector, chips, hosts."""
        uid = f"uid-{next(self._numbers)}"
        every = [("slice", selector or V4_16, chips, hosts, jobs), *((*one, 1) for one in replicated)]
        self._jobsets[namespace, name] = {
            "metadata": {
                "name": name,
                "namespace": namespace,
                "uid": uid,
                "creationTimestamp": self.time(),
                "annotations": {f"{pool_names.PREFIX}/{key}": value for key, value in (annotations or {}).items()},
            },
            "spec": {
                "suspend": False,
                "replicatedJobs": [
                    {"name": one, "template": {"spec": {"parallelism": hosts}}} for one, _, _, hosts, _ in every
                ],
            },
            "status": {},
            "_jobs": [
                (f"{name}-{one}-{index}", one, dict(labels), chips)
                for one, labels, chips, _, count in every
                for index in range(count)
            ],
        }
        self._start(namespace, name)
        return uid

    def _start(self, namespace: str, name: str) -> None:
        jobset = self._jobsets[namespace, name]
        for job, replicated, selector, chips in jobset["_jobs"]:
            self.add_leader(jobset, job, replicated, selector, chips)

    def add_leader(self, jobset: Doc, job: str, replicated: str, selector: Doc, chips: int) -> None:
        meta = jobset["metadata"]
        uid = f"pod-{next(self._numbers)}"
        condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/0 nodes"}
        self._pods[uid] = {
            "metadata": {
                "name": f"{job}-0-{uid}",
                "namespace": meta["namespace"],
                "uid": uid,
                "labels": {
                    "jobset.sigs.k8s.io/jobset-name": meta["name"],
                    "jobset.sigs.k8s.io/jobset-uid": meta["uid"],
                    "jobset.sigs.k8s.io/replicatedjob-name": replicated,
                    "batch.kubernetes.io/job-name": job,
                },
            },
            "spec": {
                "nodeSelector": dict(selector),
                "containers": [{"resources": {"limits": {"google.com/tpu": chips}}}],
            },
            "status": {"phase": "Pending", "conditions": [{**condition, "lastTransitionTime": self.time()}]},
        }

    def pods_of(self, name: str) -> list[Doc]:
        return [one for one in self._pods.values() if _label(one, "jobset.sigs.k8s.io/jobset-name") == name]

    def running(self, name: str) -> int:
        return sum(1 for one in self.pods_of(name) if one["status"]["phase"] == "Running")

    def finish(self, name: str, how: str = "Completed", namespace: str = "research") -> None:
        condition = {"type": how, "status": "True", "lastTransitionTime": self.time()}
        self._jobsets[namespace, name]["status"]["conditions"] = [condition]
        self._drop_pods(name)

    def delete(self, name: str, namespace: str = "research") -> None:
        self._drop_pods(name)
        del self._jobsets[namespace, name]

    def suspend(self, name: str, namespace: str = "research", *, on: bool = True) -> None:
        jobset = self._jobsets[namespace, name]
        jobset["spec"]["suspend"] = on
        since = {"type": "Suspended", "status": str(on), "lastTransitionTime": self.time()}
        jobset["status"]["conditions"] = [since]
        self._drop_pods(name)
        if not on:
            self._start(namespace, name)

    def restart(self, name: str, namespace: str = "research") -> None:
        self._drop_pods(name)
        self._start(namespace, name)

    def _drop_pods(self, name: str) -> None:
        for pod in self.pods_of(name):
            del self._pods[pod["metadata"]["uid"]]

    def add_hosts(self, pool: NodePool) -> None:
        shape = dict(V4_16)
        if pool.machine_type.startswith("ct5lp"):
            shape = {"cloud.google.com/gke-tpu-accelerator": "tpu-v5-lite-podslice"}
            shape["cloud.google.com/gke-tpu-topology"] = pool.topology or "2x4"
        elif pool.topology:
            shape["cloud.google.com/gke-tpu-topology"] = pool.topology
        capacity = {"cloud.google.com/gke-spot": "true"} if pool.spot else {}
        for index in range(pool.nodes):
            name = f"gke-{pool.name}-{index}"
            self._nodes[name] = {
                "metadata": {
                    "name": name,
                    "uid": f"node-{next(self._numbers)}",
                    "labels": {**pool.labels, **shape, **capacity, "cloud.google.com/gke-nodepool": pool.name},
                },
                "status": {"conditions": [{"type": "Ready", "status": "True"}]},
            }

    def remove_hosts(self, pool: str) -> None:
        """Remove the hosts of a pool with their pods; JobSet recreates all pods of each affected JobSet."""
        gone = {name for name, node in self._nodes.items() if _label(node, "cloud.google.com/gke-nodepool") == pool}
        self._nodes = {name: node for name, node in self._nodes.items() if name not in gone}
        for pod in list(self._pods.values()):
            name = _label(pod, "jobset.sigs.k8s.io/jobset-name")
            if pod["spec"].get("nodeName") in gone and pod["metadata"]["uid"] in self._pods:
                self.restart(name, pod["metadata"]["namespace"])

    def schedule(self) -> None:
        """Schedule each pending leader to its own pool with matching labels."""
        taken = {self.pool_of(pod) for pod in self._pods.values() if pod["spec"].get("nodeName")}
        taken |= {self.pool_of(pod) for pod in self.foreign}
        for pod in self._pods.values():
            if pod["status"]["phase"] != "Pending" or pod["spec"].get("nodeName"):
                continue
            for name, node in self._nodes.items():
                labels = node["metadata"]["labels"]
                pool = labels["cloud.google.com/gke-nodepool"]
                if node.get("spec", {}).get("unschedulable"):
                    continue
                if pool not in taken and pod["spec"]["nodeSelector"].items() <= labels.items():
                    pod["spec"]["nodeName"] = name
                    pod["status"] = {"phase": "Running", "conditions": []}
                    taken.add(pool)
                    break

    def pool_of(self, pod: Doc) -> str:
        node = self._nodes.get(pod["spec"].get("nodeName", ""))
        return _label(node, "cloud.google.com/gke-nodepool") if node else ""

    def event_texts(self, reason: str) -> list[str]:
        return [one["message"] for one in self.events.values() if one["reason"] == reason]

    def time(self) -> str:
        return datetime.fromtimestamp(self.clock.now(), UTC).isoformat().replace("+00:00", "Z")


class ProvisionerWorld:
    """A cluster, its GKE, and a provisioner that can be killed and restarted."""

    def __init__(self, seed: int = 0, *, zones: tuple[str, ...] = ZONES, **config: str) -> None:
        self.clock = ManualClock()
        self.gke = SimulatedGke(self.clock, seed)
        self.cluster = SimulatedCluster(self.clock)
        self.gke.came, self.gke.went = self.cluster.add_hosts, self.cluster.remove_hosts
        self.cluster.configure(**{"removal_delay": "10", "minimum_age": "20", "suspended_grace": "60", **config})
        self.zones, self.leader = zones, Alone()
        self.complaints: list[str] = []
        self.metrics = Metrics(self.leader.leading, self.clock.now)
        self.driver = self.start()

    def start(self) -> Driver:
        """Start a new replica without any state of the one before."""
        self.driver = Driver(
            self.cluster,
            self.gke,
            self.cluster,
            self.leader,
            self.clock,
            zones=self.zones,
            complain=lambda pool, text: self.complaints.append(text),
            counting=self.metrics.counting(),
            intervals=Intervals(5.0, 5.0, 5.0),
            seed=1,
        )
        return self.driver

    def pass_time(self, seconds: float, step: float = 5.0) -> None:
        """Run rounds while the simulation advances."""
        due = self.clock.now() + seconds
        while self.clock.now() < due:
            self.clock.sleep(step)
            self.gke.tick()
            self.cluster.schedule()
            self.driver.round()
            self.check()

    def check(self) -> None:
        """Assert the invariants that hold at any moment."""
        assert not any("exists and was not created by" in text for text in self.complaints)
        for name, doc in self.gke.pool_docs.items():
            assert doc["body"]["name"] == name

    def pools(self, jobset: str = "") -> list[str]:
        return [
            name
            for name, doc in self.gke.pool_docs.items()
            if not jobset or doc["body"]["config"]["labels"].get(pool_names.JOBSET) == jobset
        ]


def _label(thing: Doc, key: str) -> str:
    return str((thing["metadata"].get("labels") or {}).get(key, ""))


__all__ = ["ZONES", "ProvisionerWorld", "SimulatedCluster", "pools"]
