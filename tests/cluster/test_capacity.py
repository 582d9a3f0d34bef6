"""Kinds of capacity in a real Kueue: the quota that a job uses, its placement, and the handling of missing hosts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import yaml

from support.box import SETTINGS, TEAM, V4_16, ZONE, Box, Doc, sandbox, until
from tpubox.kubelet import Pool, of_slice
from tpukit import catalogue
from tpukit.jobs import render
from tpukit.jobs.plan import Plan
from tpukit.jobs.render import PoolKind

V6E_16 = catalogue.find("v6e-16")
FLEX = {
    "initialNodeCount": 0,
    "autoscaling": {"enabled": True, "maxNodeCount": 4},
    "queuedProvisioning": {"enabled": True},
    "management": {"autoRepair": False, "autoUpgrade": True},  # flex-start nodes are not repaired
    "config": {
        "machineType": "ct6e-standard-4t",
        "diskType": "hyperdisk-balanced",
        "flexStart": True,
        "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"},
    },
    "placementPolicy": {"type": "COMPACT", "tpuTopology": "4x4"},
}
SHORT = {"grace": "1s"}  # as the first process of a container, `sleep` ignores SIGTERM
PROJECT = "projects/tpu-project"
CLUSTERS = f"container/v1/{PROJECT}/locations/us-east5/clusters"
REQUESTS = f"/apis/autoscaling.x-k8s.io/v1/namespaces/{TEAM}/provisioningrequests"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    """Yield a sandbox with one on-demand and one spot slice, and two that are created on request."""
    with sandbox(tmp_path_factory.mktemp("capacity"), "capacity") as made:
        for kind in ("on-demand", "spot"):
            made.agent.add_pool(of_slice(kind, V4_16, ZONE, capacity=kind))
        made.agent.add_pool(Pool("cpu", "e2-standard-8", {"cpu-0": ZONE}, labels=dict([render.node_labels.CPU_POOL])))
        add_flex_start_pools(made)
        add_queues(made, on_demand=1)
        account = {"metadata": {"name": SETTINGS.service_account, "namespace": TEAM}}
        made.cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
        yield made


def add_queues(box: Box, *, on_demand: int) -> None:
    slices = {PoolKind(V4_16): on_demand, PoolKind(V4_16, "spot"): 1, PoolKind(V6E_16, "flex-start"): 2}
    for document in render.queues(slices, [TEAM], cpus=8, memory_gb=32, queued=True):
        box.cluster.apply(document)


def add_flex_start_pools(box: Box) -> None:
    network = f"{PROJECT}/global/networks/net"
    compute = f"compute/v1/{PROJECT}"
    box.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
    subnet = {"name": "subnet", "ipCidrRange": "10.0.0.0/16", "network": network}
    box.ask("POST", f"{compute}/regions/us-east5/subnetworks", subnet)
    cluster = {"name": "here", "initialNodeCount": 1, "locations": ["us-east5-a"]}
    box.ask("POST", CLUSTERS, {"cluster": {**cluster, "network": "net", "subnetwork": "subnet"}})
    until(lambda: box.ask("GET", f"{CLUSTERS}/here")["status"] == "RUNNING", "the cluster to run")
    for name in ("flex-0", "flex-1"):
        box.ask("POST", f"{CLUSTERS}/here/nodePools", {"nodePool": {"name": name, **FLEX}})
        until(lambda name=name: box.ask("GET", f"{CLUSTERS}/here/nodePools/{name}")["status"] == "RUNNING", name)


def workload(box: Box, made: Plan) -> Doc:
    owned = [
        one
        for one in box.cluster.list("Workload", TEAM)
        if any(owner["name"] == made.id for owner in one["metadata"].get("ownerReferences", []))
    ]
    return owned[0] if owned else {}


def condition(box: Box, made: Plan, kind: str) -> Doc:
    found = workload(box, made).get("status", {}).get("conditions", [])
    return next((one for one in found if one["type"] == kind), {})


def on(box: Box, made: Plan) -> set[str]:
    """Return the pools of a job's hosts."""
    nodes = {node["metadata"]["name"]: node["metadata"]["labels"] for node in box.cluster.list("Node")}
    return {
        nodes[pod["spec"]["nodeName"]]["cloud.google.com/gke-nodepool"]
        for pod in box.pods(made)
        if pod["spec"].get("nodeName") in nodes
    }


def test_jobs_take_quota_and_nodes_of_the_kind_that_they_name_alone(box: Box) -> None:
    first = box.send("first", "sleep", "1000", slices=1, capacity="on-demand", max=SHORT)
    until(lambda: on(box, first) == {"on-demand"}, "the first job to have its slice")
    second = box.send("second", "sleep", "1000", slices=1, capacity="on-demand", max=SHORT)
    until(lambda: condition(box, second, "QuotaReserved").get("status") == "False", "the second job to be looked at")
    spot = box.send("spot", "sleep", "1000", slices=1, max=SHORT)
    until(lambda: on(box, spot) == {"spot"}, "the spot job to have its slice")
    assert condition(box, second, "QuotaReserved")["status"] == "False", "it waits for an on-demand slice"
    for made in (first, second, spot):
        box.cluster.delete("JobSet", made.id, TEAM)
    until(lambda: not box.cluster.list("Pod", TEAM), "all hosts to be gone")


def test_flex_start_job_is_let_in_when_its_slice_has_come(box: Box) -> None:
    limits = {**SHORT, "runtime": "1h"}
    made = box.send("flex", "sleep", "1000", tpu="v6e-16", slices=1, capacity="flex-start", max=limits)
    until(lambda: on(box, made) in ({"flex-0"}, {"flex-1"}), "the job to have its slice")
    (request,) = box.cluster.call("GET", REQUESTS)["items"]
    assert request["spec"]["provisioningClassName"] == "queued-provisioning.gke.io"
    assert request["spec"]["parameters"] == {"maxRunDurationSeconds": "4500"}
    assert [one["type"] for one in request["status"]["conditions"]][:2] == ["Accepted", "Provisioned"]
    box.cluster.delete("JobSet", made.id, TEAM)
    until(lambda: not box.cluster.call("GET", REQUESTS)["items"], "the request of a job that is gone to be gone")


def test_job_whose_hosts_do_not_come_gives_its_quota_back_and_waits_again(box: Box) -> None:
    """Use the installed configuration, with a tenth of a minute instead of half an hour."""
    name = "controller_manager_config.yaml"
    config = yaml.safe_load(box.cluster.get("ConfigMap", "kueue-manager-config", "kueue-system")["data"][name])
    assert config["waitForPodsReady"]["timeout"] == "30m"
    config["waitForPodsReady"]["timeout"] = "6s"
    box.cluster.patch("ConfigMap", "kueue-manager-config", {"data": {name: yaml.safe_dump(config)}}, "kueue-system")
    box.kubectl("rollout", "restart", "--namespace=kueue-system", "deployment/kueue-controller-manager")
    add_queues(box, on_demand=2)  # one of them does not exist
    made = box.send("hostless", "sleep", "1000", slices=2, capacity="on-demand", max=SHORT)
    evicted = until(lambda: condition(box, made, "Evicted"), "it to be evicted")
    assert evicted["reason"] == "PodsReadyTimeout"
    until(lambda: workload(box, made)["status"].get("requeueState", {}).get("count", 0) >= 1, "it to be queued again")
    assert workload(box, made)["spec"].get("active", True)
