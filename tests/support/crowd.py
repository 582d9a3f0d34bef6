"""Load for a sandbox: thousands of hosts that kwok keeps alive, and hundreds of jobs in one queue."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from support.waiting import until
from tpubox.pools.allocatable import allocatable
from tpukit import catalogue
from tpukit.catalogue import Slice
from tpukit.jobs import plan, render
from tpukit.jobs.plan import Plan
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kube import Cluster

TEAM = "research"
SHAPE = catalogue.find("v4-16")
POOLS = 500  # of two hosts each
QUOTA = 100  # slices of the queue: 50 jobs run at once, the others wait
JOBS = 100
SLICES = 2  # of each job
PRIORITIES = ("low", "medium", "high")
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": TEAM})
LOOK_SECONDS = 5.0
"""Interval between checks: a check costs the API server as much as a few jobs."""
_THREADS = 8


def simulated_pool(name: str, shape: Slice) -> Iterator[dict[str, Any]]:
    """Yield nodes as GKE creates them for one slice, kept alive by kwok."""
    labels = {
        "cloud.google.com/gke-nodepool": name,
        **render.PoolKind(shape).labels,
        "cloud.google.com/gke-accelerator-count": str(shape.chips_per_host),
    }
    vcpus, memory_gb = render.machine_share.machine(shape)
    amounts = {"cpu": str(vcpus), "memory": f"{memory_gb}G", "pods": "16", "google.com/tpu": str(shape.chips_per_host)}
    amounts["ephemeral-storage"] = "100Gi"
    for index in range(shape.hosts):
        yield {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": f"{name}-{index}",
                "labels": {**labels, "kubernetes.io/hostname": f"{name}-{index}"},
                "annotations": {"kwok.x-k8s.io/node": "fake"},
            },
            "spec": {"taints": [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}]},
            "status": {"capacity": amounts, "allocatable": allocatable(amounts)},
        }


def add_hosts(cluster: Cluster) -> None:
    """Add pools, a queue, and its team."""
    for document in render.queues({SHAPE: QUOTA}, [TEAM], cpus=8, memory_gb=32):
        cluster.apply(document)
    account = {"metadata": {"name": SETTINGS.service_account, "namespace": TEAM}}
    cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
    nodes = [node for number in range(POOLS) for node in simulated_pool(f"pool-{number:03d}", SHAPE)]
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(cluster.create, nodes))
    until(lambda: all(is_open(node) for node in cluster.list("Node")), "hosts to be open", 900.0, every=LOOK_SECONDS)


def is_open(node: dict[str, Any]) -> bool:
    """Return whether pods can be scheduled there: nodes stay tainted until kwok reports them as alive."""
    return not any(taint["key"].startswith("node.kubernetes.io/") for taint in node["spec"]["taints"])


def hold_queue(cluster: Cluster, *, hold: bool) -> None:
    """Hold or release the queues. While held, jobs only line up."""
    for queue in cluster.list("ClusterQueue"):
        change = {"spec": {"stopPolicy": "Hold" if hold else "None"}}
        cluster.patch("ClusterQueue", queue["metadata"]["name"], change)
    until(lambda: all(_active(one) is not hold for one in cluster.list("ClusterQueue")), "Kueue to know", every=0.2)


def _active(queue: dict[str, Any]) -> bool:
    conditions = queue.get("status", {}).get("conditions", [])
    return any((one["type"], one["status"]) == ("Active", "True") for one in conditions)


def send_jobs(cluster: Cluster, command: Sequence[str]) -> list[Plan]:
    """Send jobs with three priorities in turn."""
    plans = [_plan(number, command) for number in range(JOBS)]
    with ThreadPoolExecutor(_THREADS) as threads:
        list(threads.map(cluster.apply, [document for made in plans for document in render.documents(made)]))
    return plans


def _plan(number: int, command: Sequence[str]) -> Plan:
    spec = {
        "name": f"job-{number:03d}",
        "tpu": SHAPE.name,
        "slices": SLICES,
        "command": list(command),
        "image": "image:1",
        "priority": PRIORITIES[number % 3],
    }
    return plan.make(JobSpec.from_json(spec), SETTINGS, "gke")
