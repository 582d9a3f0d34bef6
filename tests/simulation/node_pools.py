"""GKE's node pools in a simulated world, their hosts, and the scheduler that assigns pods to them."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from google.api_core.exceptions import BadRequest

from simulation.kube import Doc, Key, condition
from simulation.kube_jobsets import INDEX, JOB_NAME, JobSets
from simulation.machines import Machine
from support.simulated_gke import QUOTA, STOCKOUT, SimulatedGke, _operation, _read
from tpukit.core.errors import Conflict
from tpukit.google.gke import NodePool, Operation, _change
from tpukit.google.refusals import _of_status
from tpukit.places.gke.jobsets import TERMINAL, UID
from tpukit.provisioner import pool_names

if TYPE_CHECKING:
    from simulation.provisioner_scene import ProvisionerScene

GOOGLE = "cloud.google.com"
POOL, HOSTNAME = f"{GOOGLE}/gke-nodepool", "kubernetes.io/hostname"
GONE_SECONDS = 60.0
"""Seconds after the end of its JobSet in which a pool may still be requested: mirrors and leases lag behind."""


class PooledJobSets(JobSets):
    """JobSets whose pods wait for a matching pool. A pool holds the pods of one Job."""

    def __init__(self, scene: ProvisionerScene) -> None:
        super().__init__(scene.world)
        self.scene = scene

    def place(self, key: Key) -> None:
        for pod in self._pods_of(self._uid(key)):
            doc = self.edit("Pod", pod)
            condition(doc, "PodScheduled", False, self.time(), "Unschedulable", "0/3 nodes are available")
        self.scene.schedule_soon()

    def freed(self) -> None:
        self.scene.schedule_soon()

    def changed(self, kind: str, key: Key) -> None:
        if kind == "Node":
            self.scene.schedule_soon()
        notes = self.of(kind)[key]["metadata"].get("annotations") or {}
        if any(name.startswith(f"{pool_names.TRIES}/") and '"kind":"refused"' in text for name, text in notes.items()):
            self.world.violate("evidence", f"records that GKE refuses a pool of {key[1]}, which passes by itself")

    def schedule(self) -> None:
        taken = {self.pool_of(pod) for pod in self.of("Pod").values() if pod["status"]["phase"] not in TERMINAL}
        for key, pod in list(self.of("Pod").items()):
            if pod["metadata"].get("labels", {}).get(INDEX) != "0" or pod["spec"].get("nodeName"):
                continue
            if pod["status"]["phase"] != "Pending" or "deletionTimestamp" in pod["metadata"]:
                continue
            pool = next((one for one in self._open_pools(pod) if one not in taken), "")
            if pool:
                taken.add(pool)
                self._bind(key, pool)

    def _open_pools(self, pod: Doc) -> list[str]:
        pools = dict.fromkeys(node["metadata"]["labels"][POOL] for node in self.of("Node").values())
        return [
            pool
            for pool in pools
            if all(fits(pod, node) and not (node.get("spec") or {}).get("unschedulable") for node in self.hosts(pool))
            and self.scene.gke.pool_docs.get(pool, {}).get("status") == "RUNNING"
        ]

    def _bind(self, leader: Key, pool: str) -> None:
        labels = self.of("Pod")[leader]["metadata"]["labels"]
        uid, job = labels[UID], labels[JOB_NAME]
        nodes = [node["metadata"]["name"] for node in self.hosts(pool)]
        together = [pod for pod in self._pods_of(uid) if self.of("Pod")[pod]["metadata"]["labels"][JOB_NAME] == job]
        for pod, node in zip(together, nodes, strict=False):
            doc = self.edit("Pod", pod)
            doc["spec"]["nodeName"] = node
            condition(doc, "PodScheduled", True, self.time())
        if all(self.of("Pod")[pod]["spec"].get("nodeName") for pod in self._pods_of(uid)):
            self.start_soon(next(key for key in self.of("JobSet") if self._uid(key) == uid))

    def hosts(self, pool: str) -> list[Doc]:
        return [node for node in self.of("Node").values() if node["metadata"]["labels"][POOL] == pool]

    def pool_of(self, pod: Doc) -> str:
        node = self.of("Node").get(("", pod["spec"].get("nodeName", "")))
        return str(node["metadata"]["labels"][POOL]) if node else ""

    def on(self, pool: str) -> list[Doc]:
        """Return the pods that run on a pool or are about to."""
        pods = self.of("Pod").values()
        return [pod for pod in pods if pod["status"]["phase"] not in TERMINAL and self.pool_of(pod) == pool]

    def add_hosts(self, pool: NodePool) -> None:
        for index in range(pool.nodes):
            name = f"gke-{pool.name}-{index}"
            document = {"metadata": {"name": name, "labels": {**host_labels(pool), HOSTNAME: name}}}
            self.add("Node", ("", name), {**document, "status": {"conditions": [{"type": "Ready", "status": "True"}]}})
        self.scene.schedule_soon()

    def remove_hosts(self, pool: str) -> None:
        uids = {pod["metadata"].get("labels", {}).get(UID, "") for pod in self.on(pool)}
        for pod in [key for key, pod in self.of("Pod").items() if self.pool_of(pod) == pool]:
            if not self.of("Pod")[pod]["metadata"].get("labels"):
                del self.of("Pod")[pod]
        for node in self.hosts(pool):
            del self.of("Node")["", node["metadata"]["name"]]
        for key in list(self.of("JobSet")):
            if self._uid(key) in uids:
                if self.phase[self._uid(key)] == "starting":  # hosts are lost before the program begins
                    self._start(key)
                self.fail(key, "preempted")


class NodePools(SimulatedGke):
    """Node pools that check each request against the ground truth when it arrives."""

    def __init__(self, scene: ProvisionerScene) -> None:
        world = scene.world
        super().__init__(world.clock, world.plan.seed)  # type: ignore[arg-type]
        self.world, self.scene, self.seconds = world, scene, (40.0, 200.0)
        self.short = self.no_quota = self.refusing = 0.0
        self.failed_deletes: dict[str, list[float]] = {}  # times, by pool
        self.short_in: dict[str, float] = {}  # until when a zone has no chips
        self.came, self.went = scene.kube.add_hosts, scene.kube.remove_hosts

    def list_pools(self) -> list[NodePool]:
        self.tick()
        return [_read(doc) for doc in self.pool_docs.values()]

    def list_operations(self) -> list[Operation]:
        self.tick()
        return [_operation(one) for one in self.ops[-200:]]

    def create(self, body: Doc) -> Operation:
        self.tick()
        self._refuse()
        if self.no_quota > self.clock.now():
            raise _of_status(403, QUOTA)
        operation = self._create(dict(body))
        self._judge_create(body)
        return operation

    def remove(self, name: str) -> Operation:
        self.tick()
        self._refuse()
        operation = self._delete(name)
        self._judge_delete(name)
        return operation

    def _refuse(self) -> None:
        """Refuse a valid request at a bad moment, such as a resize of the control plane."""
        if self.refusing > self.clock.now():
            message = "The control plane of the cluster is unavailable."
            answer = {"error": {"code": 400, "message": message, "status": "FAILED_PRECONDITION"}}
            raise BadRequest(message, response=SimpleNamespace(json=lambda: answer, headers={}))

    def own(self) -> list[str]:
        return [name for name, doc in self.pool_docs.items() if _is_ours(doc)]

    def _start(self, kind: str, name: str) -> Operation:
        operation = super()._start(kind, name)
        self.world.scheduler.spawn(self.tick, self.ops[-1]["due"] - self.clock.now())
        return operation

    def _end(self, one: Doc) -> None:
        if one["target"] not in self.pool_docs:  # a person removed the pool meanwhile
            return
        zone = self.pool_docs[one["target"]]["body"]["locations"][0]
        if one["kind"] == "CREATE_NODE_POOL" and max(self.short, self.short_in.get(zone, 0.0)) > self.clock.now():
            one["error"] = STOCKOUT
            self.pool_docs[one["target"]] |= {"status": "ERROR", "message": STOCKOUT}
            return
        super()._end(one)
        if one["target"] in self.pool_docs:
            self.pool_docs[one["target"]]["ready"] = self.clock.now()
            if one["kind"] == "DELETE_NODE_POOL":
                self.failed_deletes.setdefault(one["target"], []).append(self.clock.now())

    def _judge_create(self, body: Doc) -> None:
        labels, kube = body["config"]["labels"], self.scene.kube
        uid, job = labels[pool_names.UID], labels[pool_names.JOB]
        gone = self.scene.gone_since(uid)
        if gone is not None and self.clock.now() - gone > GONE_SECONDS:
            self.world.violate(
                "stale", f"creates {body['name']} for a JobSet that is gone for {self.clock.now() - gone:.0f} s"
            )
        leaders = kube.list("Pod", labels=f"{JOB_NAME}={job},{UID}={uid},{INDEX}=0")
        node = {"metadata": {"labels": host_labels(_read(self.pool_docs[body["name"]]))}}
        known = self.scene.pin(labels[pool_names.JOBSET]) != "unknown"
        if known and leaders and not any(fits(pod, node) for pod in leaders):
            self.world.violate("bought", f"creates {body['name']}, on which its pod can never run")
        held = [one for one in self.own() if self.scene.gone_since(self._uid_of(one)) is None]
        if len(held) > self.scene.slices():
            self.world.violate("doubled", f"creates {body['name']}, and there are {held}")

    def _uid_of(self, name: str) -> str:
        return str(self.pool_docs[name]["body"]["config"]["labels"][pool_names.UID])

    def _judge_delete(self, name: str) -> None:
        world, kube, doc = self.world, self.scene.kube, self.pool_docs[name]
        if not _is_ours(doc):
            world.violate("foreign", f"deletes node pool {name}, which is a person's")
        for pod in kube.on(name):
            labels = pod["metadata"].get("labels") or {}
            uid = labels.get(UID, "")
            if not uid:
                world.violate("foreign", f"deletes node pool {name}, on which {pod['metadata']['name']} runs")
            elif kube.phase.get(uid) in ("starting", "running") and uid not in self.scene.asked:
                world.violate("healthy", f"deletes node pool {name}, on which {pod['metadata']['name']} runs")


def _is_ours(doc: Doc) -> bool:
    return bool(doc["body"]["config"]["labels"].get(pool_names.MANAGED_BY) == pool_names.MANAGER)


class PoolsClient:
    """GKE as one machine reaches it, as cloud/gke.py does."""

    def __init__(self, machine: Machine, real: NodePools) -> None:
        self._machine, self._real = machine, real

    def pools(self) -> list[NodePool]:
        return self._call("list pools", self._real.list_pools)

    def operations(self) -> list[Operation]:
        return self._call("list operations", self._real.list_operations)

    def create_pool(self, body: Doc) -> Operation:
        return self._call(
            f"create pool {body['name']}", lambda: _change("create", lambda: self._real.create(body)), mutates=True
        )

    def delete_pool(self, name: str, labels: Mapping[str, str] | None = None) -> Operation:
        if labels is not None:
            found = self._call(f"get pool {name}", lambda: self._labels(name))
            if not labels.items() <= found.items():
                raise Conflict(f"another node pool is called {name} now")
        return self._call(
            f"delete pool {name}", lambda: _change("delete", lambda: self._real.remove(name)), mutates=True
        )

    def _labels(self, name: str) -> Mapping[str, str]:
        self._real.tick()
        if name not in self._real.pool_docs:
            raise _of_status(404, f"Not found: {name}.")
        return dict(self._real.pool_docs[name]["body"]["config"]["labels"])

    def _call(self, what: str, do: Any, *, mutates: bool = False) -> Any:
        def act() -> Any:
            self._machine.world.acting = self._machine.name
            return do()

        return self._machine.call("cloud", what, act, mutates=mutates)


def host_labels(pool: NodePool) -> dict[str, str]:
    """Return the labels of a host: those of its pool and those that GKE adds."""
    labels = {**pool.labels, POOL: pool.name, "topology.kubernetes.io/zone": pool.zones[0], "kubernetes.io/os": "linux"}
    labels[f"{GOOGLE}/gke-tpu-accelerator"] = "tpu-v4-podslice"
    labels[f"{GOOGLE}/gke-tpu-topology"] = pool.topology or "2x2x1"
    return {**labels, **({f"{GOOGLE}/gke-spot": "true"} if pool.spot else {})}


def fits(pod: Doc, node: Doc) -> bool:
    labels = node["metadata"]["labels"]
    if not (pod["spec"].get("nodeSelector") or {}).items() <= labels.items():
        return False
    required = ((pod["spec"].get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    ) or {}
    terms = required.get("nodeSelectorTerms") or ()
    return not terms or any(all(_holds(one, labels) for one in term["matchExpressions"]) for term in terms)


def _holds(expression: Doc, labels: Mapping[str, str]) -> bool:
    there, values = labels.get(expression["key"]), expression.get("values") or ()
    operator = expression["operator"]
    if operator in ("Exists", "DoesNotExist"):
        return (there is not None) == (operator == "Exists")
    return (there in values) == (operator == "In")
