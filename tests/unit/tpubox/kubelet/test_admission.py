"""Admission on a node: pods that name a node and are refused by it."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from support.agent_world import CPU, NODE, SPOT, World, with_slice
from tpubox.kubelet import node_fit
from tpubox.kubelet.admission import Node, judge
from tpubox.kubelet.registered_pools import labels

Doc = dict[str, Any]
HOST = next(iter(SPOT.nodes))
CLOSED = {"key": "closed", "value": "yes", "effect": "NoExecute"}
HERE = Node({"disk": "ssd", "size": "7"}, {"cpu": "4", "memory": "8Gi", "pods": "2"}, taints=[CLOSED])
OPEN = Node(HERE.labels, HERE.allocatable)


def pod(asks: Doc | None = None, **spec: Any) -> Doc:
    containers = [{"name": "main", "resources": {"requests": asks or {}}}]
    return {"metadata": {"name": "p"}, "spec": {"nodeName": "here", "containers": containers, **spec}}


def affinity(**term: Any) -> Doc:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}}
    return {"affinity": {"nodeAffinity": required}}


@pytest.mark.parametrize(
    ("wanted", "others", "reason"),
    [
        (pod(), [], ""),
        (pod({"cpu": "500"}), [], "OutOfcpu"),
        (pod({"cpu": "3"}), [pod({"cpu": "2"})], "OutOfcpu"),
        (pod({"cpu": "2"}), [pod({"cpu": "2"})], ""),
        (pod({"memory": "9Gi"}), [], "OutOfmemory"),
        (pod(), [pod(), pod()], "OutOfpods"),
        (pod({"example.com/licence": "1"}), [], ""),
        (pod(nodeSelector={"disk": "hdd"}), [], "NodeAffinity"),
        (pod(nodeSelector={"disk": "ssd"}), [], ""),
        (pod(**affinity(matchExpressions=[{"key": "size", "operator": "Gt", "values": ["7"]}])), [], "NodeAffinity"),
        (pod(**affinity(matchExpressions=[{"key": "size", "operator": "Lt", "values": ["8"]}])), [], ""),
        (pod(**affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["here"]}])), [], ""),
        (
            pod(**affinity(matchFields=[{"key": "metadata.name", "operator": "In", "values": ["there"]}])),
            [],
            "NodeAffinity",
        ),
    ],
)
def test_pod_that_names_its_node_is_judged_as_the_scheduler_would_have(wanted: Doc, others: list[Doc], reason: str):
    refused = judge(wanted, OPEN, others)
    assert (refused.reason if refused else "") == reason


def test_words_are_a_kubelets():
    refused = judge(pod({"cpu": "3"}), OPEN, [pod({"cpu": "1500m"})])
    words = "Pod was rejected: Node didn't have enough resource: cpu, requested: 3000, used: 1500, capacity: 4000"
    assert refused and refused.message == words


@pytest.mark.parametrize(
    ("toleration", "taken"),
    [
        ({"operator": "Exists"}, True),
        ({"key": "closed", "value": "yes"}, True),
        ({"key": "closed", "value": "yes", "effect": "NoSchedule"}, False),
    ],
)
def test_pod_that_does_not_tolerate_to_be_thrown_out_is_not_taken(toleration: Doc, taken: bool):
    refused = judge(pod(tolerations=[toleration]), HERE, [])
    assert (refused is None) == taken


def test_requests_are_the_most_that_a_pod_asks_for_at_one_time():
    def container(cpu: str, **more: Any) -> Doc:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    inits = [container("1", restartPolicy="Always"), container("5")]
    spec = {"initContainers": inits, "containers": [container("2"), container("2")], "overhead": {"cpu": "250m"}}
    assert node_fit.requests(spec) == {"cpu": Decimal("6.25")}
    assert node_fit.requests({**spec, "resources": {"requests": {"cpu": "8"}}}) == {"cpu": Decimal("8.25")}
    assert node_fit.requests({"containers": [{"resources": {"limits": {"cpu": "1"}}}]}) == {"cpu": 1}


world = pytest.fixture(name="world")(with_slice)


def test_second_pod_on_the_chips_of_a_host_is_rejected_and_its_like_is_taken_when_they_are_free(world: World):
    chips = {"limits": {"google.com/tpu": "4"}}
    world.shell("exec sleep 60", name="one", node=HOST, resources=chips)
    world.phase("Running", name="one")
    world.shell("exec sleep 60", name="two", node=HOST, resources=chips)
    status = world.phase("Failed", name="two")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "unavailable for google.com/tpu. Requested: 4, Available: 0" in status["message"]
    assert "containerStatuses" not in status
    world.api.delete_pod("one", grace=0)
    world.shell("exec sleep 60", name="three", node=HOST, resources=chips)
    world.phase("Running", name="three")


def test_pods_that_come_together_are_taken_as_long_as_there_is_room(world: World):
    half = {"requests": {"cpu": "1500m"}}
    for number in range(4):
        world.shell("exec sleep 60", name=f"p{number}", resources=half)
    phases = sorted(world.phase("Running", "Failed", name=f"p{number}")["phase"] for number in range(4))
    assert phases == ["Failed", "Failed", "Running", "Running"]


def test_label_that_somebody_gave_the_node_counts(world: World):
    world.shell("true", name="early", spec={"nodeSelector": {"mine": "yes"}})
    assert world.phase("Failed", name="early")["reason"] == "NodeAffinity"
    world.api.patch("Node", NODE, {"metadata": {"labels": {**labels(CPU, NODE), "mine": "yes"}}})
    world.shell("true", name="late", spec={"nodeSelector": {"mine": "yes"}})
    world.phase("Succeeded", name="late")
