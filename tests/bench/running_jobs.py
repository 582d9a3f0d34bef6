"""A cluster with hundreds of large running JobSets, on a machine that could not run them.

One job is sent as `tpu` sends it, and JobSet, Kueue, the scheduler and kwok bring it to run. Then the controllers are
stopped, and all objects of that job (JobSet, Workload, Jobs, pods) are copied for each of the others, with names and
ids of their own. The API server and its objects are real. No controller updates the objects while `tpu serve` is
measured.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support import crowd
from tpubox.box import components
from tpubox.box.folder import Folder
from tpukit import catalogue
from tpukit.core.clock import SystemClock
from tpukit.jobs import plan, render
from tpukit.jobs.plan import ClusterName, Plan
from tpukit.jobs.records import JOBS, Attempt, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Store
from tpukit.kube import KINDS, Cluster
from tpukit.places.base import Handle
from tpukit.places.gke import GkePlace

Doc = dict[str, Any]
TEAMS = ("team-0", "team-1", "team-2", "team-3")
CONTROLLERS = ("kube-controller-manager", "kube-scheduler", "jobset", "kueue", "kwok", "agent", "google")
WEBHOOKS = "/apis/admissionregistration.k8s.io/v1/{}webhookconfigurations"
JOBSET_LABEL = "jobset.sigs.k8s.io/jobset-name"
_THREADS = 8
_PATIENCE = 600.0
_GIVEN = ("uid", "resourceVersion", "creationTimestamp", "generation", "managedFields", "selfLink", "finalizers")


@dataclass(frozen=True, slots=True)
class Size:
    jobs: int
    shape: str

    @property
    def hosts(self) -> int:
        return catalogue.find(self.shape).hosts

    def __str__(self) -> str:
        return f"{self.jobs} JobSets of {self.hosts} hosts"


def fill(place: Folder, store: Store, sender: str, size: Size, context: str, kubelet: int) -> list[Plan]:
    """Create the jobs, running in the cluster and scheduled in the store.

    `kubelet` is the port at which nodes serve logs.
    """
    cluster = Cluster(place.kubeconfig)
    name = ClusterName(context, cluster.server.rstrip("/"), cluster.identity())
    settings = Settings.from_json({"artifacts": "gs://my-artifacts", "team": TEAMS[0]})
    plans = [_plan(number, size.shape, settings, name) for number in range(size.jobs)]
    _furnish(cluster, size.shape, settings)
    model = _run_one(cluster, place, plans[0], sender)
    components.stop(place, CONTROLLERS, grace=5.0)
    for kind in ("mutating", "validating"):
        cluster.call("DELETE", WEBHOOKS.format(kind))
    with ThreadPoolExecutor(_THREADS) as threads:
        copies = list(threads.map(lambda one: _copy_jobset(cluster, model, plans[0], one), plans[1:]))
        pods = [pod for copied in copies for pod in copied]
        list(threads.map(cluster.create, _nodes(size, plans, kubelet)))
        list(threads.map(lambda pod: _create(cluster, pod), pods))
        _point_to(cluster, model, kubelet)
    for one in plans:
        store.create(JOBS, one.id, record(one))
    return plans


def _plan(number: int, shape: str, settings: Settings, cluster: ClusterName) -> Plan:
    spec = {
        "name": f"job-{number:03d}",
        "tpu": shape,
        "command": ["sleep", "36000"],  # kwok ends pods without a duration
        "image": "image:1",
        "team": TEAMS[number % len(TEAMS)],
    }
    return plan.make(JobSpec.from_json(spec), settings, "gke", target=cluster)


def record(made: Plan) -> Job:
    """Return the record that `tpu run --detach` leaves once the job is sent."""
    return Job(
        made.id,
        "gke",
        made.team,
        "bench",
        time.time(),
        made.to_json(),
        state=_scheduled().state,
        attempts=(_scheduled(),),
    )


def _scheduled() -> Attempt:
    return Attempt(number=0, stage=0, origin=0)


def _furnish(cluster: Cluster, shape: str, settings: Settings) -> None:
    found = catalogue.find(shape)
    for document in render.queues({found: 1}, TEAMS, cpus=8, memory_gb=32):
        cluster.apply(document)
    for team in TEAMS:
        account = {"metadata": {"name": settings.service_account, "namespace": team}}
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
    for node in crowd.simulated_pool("model", found):
        cluster.create(node)


def _run_one(cluster: Cluster, place: Folder, made: Plan, sender: str) -> list[Doc]:
    """Send one job, wait until it runs, and return its JobSet, Workload, Jobs and pods."""
    sending = GkePlace(place.path / "sender", SystemClock(), lambda: sender, clusters=_Only(cluster))
    sending.submit(Handle(made, _scheduled()))
    sending.close()

    def objects() -> list[Doc]:
        mine = f"{JOBSET_LABEL}={made.id}"
        pods = cluster.list("Pod", made.team, labels=mine)
        if sum(pod["status"].get("phase") == "Running" for pod in pods) < made.hosts:
            return []
        jobset = cluster.get("JobSet", made.id, made.team)
        workloads = [one for one in cluster.list("Workload", made.team) if _owner(one) == jobset["metadata"]["uid"]]
        jobs = cluster.list("Job", made.team, labels=mine)
        return [jobset, *workloads, *jobs, *pods]

    due = time.monotonic() + _PATIENCE
    while not (found := objects()):
        if time.monotonic() > due:
            raise SystemExit(
                "bench: the JobSet that the others are copied from does not run: `tpu team queue` says why"
            )
        time.sleep(1.0)
    return found


def _owner(thing: Doc) -> str:
    return str(thing["metadata"]["ownerReferences"][0]["uid"])


class _Only:
    """A list of clusters with one entry."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def open(self, name: ClusterName) -> Cluster:
        return self._cluster


def _copy_jobset(cluster: Cluster, model: Sequence[Doc], like: Plan, made: Plan) -> list[Doc]:
    """Create copies of all objects except pods, and return the pods."""
    jobset, *rest = model
    names = {like.id: made.id, like.subdomain: made.subdomain, f'"{like.team}"': f'"{made.team}"'}
    uids = {jobset["metadata"]["uid"]: _create(cluster, _renamed(jobset, names))}
    for thing in (one for one in rest if one["kind"] != "Pod"):
        uids[thing["metadata"]["uid"]] = _create(cluster, _renamed(thing, names | uids))
    return [_renamed(one, names | uids) for one in rest if one["kind"] == "Pod"]


def _renamed(thing: Doc, names: dict[str, str]) -> Doc:
    text = json.dumps(thing)
    for before, after in names.items():
        text = text.replace(before, after)
    copied: Doc = json.loads(text)
    copied["metadata"] = {key: value for key, value in copied["metadata"].items() if key not in _GIVEN}
    if copied["kind"] == "Pod":
        copied["spec"]["nodeName"] = _node_name(copied)
    if copied["kind"] == "Job":
        copied["spec"]["manualSelector"] = True  # the selector and its labels are copied too
    return copied


def _create(cluster: Cluster, thing: Doc) -> str:
    """Create an object with its status, and return its uid."""
    made = cluster.create(thing)
    kind, metadata = KINDS[thing["kind"]], made["metadata"]
    path = kind.path(metadata["namespace"], metadata["name"], "status")
    cluster.call("PUT", path, body={**made, "status": thing["status"]})
    return str(metadata["uid"])


def _node_name(pod: Doc) -> str:
    return f"node-{pod['metadata']['name'].rpartition('-')[0]}"


def _nodes(size: Size, plans: Iterable[Plan], kubelet: int) -> Iterator[Doc]:
    shape = catalogue.find(size.shape)
    for made in plans:
        for node, host in zip(crowd.simulated_pool(made.id, shape), made.host_names, strict=True):
            name = f"node-{host}"
            node["metadata"] |= {"name": name, "labels": {**node["metadata"]["labels"], "kubernetes.io/hostname": name}}
            yield _with_kubelet(node, kubelet)


def _with_kubelet(node: Doc, port: int) -> Doc:
    address = {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }
    return {**node, "status": {**node.get("status", {}), **address}}


def _point_to(cluster: Cluster, model: Sequence[Doc], port: int) -> None:
    """Point the nodes that kwok had to this port."""
    for name in {pod["spec"]["nodeName"] for pod in model if pod["kind"] == "Pod"}:
        cluster.patch("Node", name, {"status": _with_kubelet({}, port)["status"]}, part="status")
