"""Networks of the emulator cannot be deleted while in use by TPU VMs, NATs, or the pods of a cluster."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.tpu import nodes as tpu_nodes

COMPUTE = f"compute/v1/projects/{PROJECT}"
NET, SUBNET = f"{COMPUTE}/global/networks/net", f"{COMPUTE}/regions/us-central2/subnetworks/subnet"
PLACE = f"projects/{PROJECT}/locations/us-central2-b"
VMS, QUEUE = f"tpu/v2/{PLACE}/nodes", f"tpu/v2/{PLACE}/queuedResources"
NODE = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
IN_USE = (400, "resourceInUseByAnotherResource")
NOT_READY = (400, "resourceNotReady")
FULL = f"projects/{PROJECT}/global/networks/net"
FULL_SUBNET = f"projects/{PROJECT}/regions/us-central2/subnetworks/subnet"
MISSING = [
    ({"networkConfig": {"network": "none"}}, "global/networks/none' was not found"),
    ({"networkConfig": {"network": f"projects/{PROJECT}/global/networks/none"}}, "global/networks/none' was not found"),
    ({"networkConfig": {"network": "net", "subnetwork": "none"}}, "us-central2/subnetworks/none' was not found"),
    ({"networkConfig": {"subnetwork": "none"}}, "us-central2/subnetworks/none' was not found"),
    ({"networkConfig": {"network": "other", "subnetwork": "subnet"}}, "is not in network"),
    ({"networkConfigs": [{"network": "net"}, {"network": "none"}]}, "global/networks/none' was not found"),
]
NAMED = [
    {"networkConfig": {"network": "net", "subnetwork": "subnet"}},
    {"networkConfig": {"network": FULL, "subnetwork": FULL_SUBNET}},
    {"networkConfig": {"subnetwork": f"https://www.googleapis.com/compute/v1/{FULL_SUBNET}"}},
    {"networkConfigs": [{"network": "other"}, {"subnetwork": "regions/us-central2/subnetworks/subnet"}]},
]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        made.ask("POST", f"{COMPUTE}/global/networks", {"name": "other", "autoCreateSubnetworks": False})
        made.network()
        yield made


def queue(world: World, node: dict[str, Any]) -> None:
    spec = {"nodeId": "vm", "node": {**NODE, **node}}
    world.ask("POST", QUEUE, {"tpu": {"nodeSpec": [spec]}}, queuedResourceId="wish")
    world.pass_time(1)
    world.pass_time(1)


@pytest.mark.parametrize(("said", "words"), MISSING)
def test_vm_in_a_network_that_is_not_there_fails_to_come(world, said, words):
    operation = world.ask("POST", VMS, {**NODE, **said}, nodeId="vm")
    assert operation["error"]["code"] == 3
    assert words in operation["error"]["message"]
    assert world.refusal("GET", f"{VMS}/vm")[0] == 404


@pytest.mark.parametrize(("said", "words"), MISSING)
def test_queued_resource_in_a_network_that_is_not_there_fails(world, said, words):
    queue(world, said)
    state = world.ask("GET", f"{QUEUE}/wish")["state"]
    assert state["state"] == "FAILED"
    assert state["failedData"]["error"]["code"] == 3
    assert words in state["failedData"]["error"]["message"]
    assert world.cloud.state.all("vm") == {}


@pytest.mark.parametrize("said", [{}, {"networkConfig": {"network": "default"}}])
def test_vm_in_the_network_that_every_project_of_google_has_comes(world, said):
    world.ask("POST", VMS, {**NODE, **said}, nodeId="vm")
    assert world.ask("GET", f"{VMS}/vm")["state"] == "READY"


@pytest.mark.parametrize("said", NAMED)
def test_network_and_subnet_of_a_vm_stay_until_it_is_gone(world, said):
    world.ask("POST", VMS, {**NODE, **said}, nodeId="vm")
    status, word, text = world.refusal("DELETE", SUBNET)
    assert (status, word) == IN_USE
    assert text == f"The subnetwork resource '{FULL_SUBNET}' is already being used by '{PLACE}/nodes/vm'"
    assert world.refusal("DELETE", NET)[:2] == IN_USE
    world.ask("DELETE", f"{VMS}/vm")
    world.ask("DELETE", SUBNET)
    world.ask("DELETE", NET)


def test_network_of_a_vm_that_is_named_without_a_subnet_stays(world):
    world.ask("POST", VMS, {**NODE, "networkConfig": {"network": "other"}}, nodeId="vm")
    assert world.refusal("DELETE", f"{COMPUTE}/global/networks/other")[:2] == IN_USE


def test_network_of_a_queued_resource_stays_while_its_vm_stands(world):
    queue(world, NAMED[0])
    assert world.refusal("DELETE", SUBNET)[:2] == IN_USE
    world.ask("DELETE", f"{QUEUE}/wish", force="true")
    world.pass_time(10)
    world.ask("DELETE", SUBNET)


def test_network_of_a_vm_that_was_preempted_is_free(world):
    world.ask("POST", VMS, {**NODE, **NAMED[0]}, nodeId="vm")
    tpu_nodes.preempt(world.cloud, f"{PLACE}/nodes/vm")
    world.ask("DELETE", SUBNET)


def test_vm_in_a_network_that_is_being_deleted_fails_to_come(tmp_path):
    with World(tmp_path, seconds={"delete": 100.0}) as world:
        world.network()
        world.ask("DELETE", SUBNET)
        operation = world.ask("POST", VMS, {**NODE, **NAMED[0]}, nodeId="vm")
        assert "subnetworks/subnet' was not found" in operation["error"]["message"]


def test_subnet_of_a_nat_stays_until_the_nat_is_gone(world):
    nat = {
        "name": "nat",
        "sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS",
        "subnetworks": [{"name": FULL_SUBNET}],
    }
    routers = f"{COMPUTE}/regions/us-central2/routers"
    world.ask("POST", routers, {"name": "router", "network": FULL, "nats": [nat]})
    status, word, text = world.refusal("DELETE", SUBNET)
    assert (status, word) == IN_USE
    assert text.endswith(f"is already being used by 'projects/{PROJECT}/regions/us-central2/routers/router'")
    world.ask("PATCH", f"{routers}/router", {"nats": []})
    world.ask("DELETE", SUBNET)


def ranges(world: World, *ranges: tuple[str, str]) -> dict[str, Any]:
    secondary = [{"rangeName": name, "ipCidrRange": text} for name, text in ranges]
    return {"fingerprint": world.ask("GET", SUBNET)["fingerprint"], "secondaryIpRanges": secondary}


@pytest.mark.parametrize("left", [[], [("others", "10.64.0.0/14")], [("pods", "10.80.0.0/16")]])
def test_range_of_the_pods_of_a_cluster_stays(tmp_path, left):
    with World(tmp_path) as world:
        world.cluster()
        assert world.refusal("PATCH", SUBNET, ranges(world, *left))[:2] == IN_USE
        assert [one["rangeName"] for one in world.ask("GET", SUBNET)["secondaryIpRanges"]] == ["pods"]
        world.ask("PATCH", SUBNET, ranges(world, ("pods", "10.64.0.0/14"), ("more", "10.80.0.0/16")))
        world.ask("PATCH", SUBNET, ranges(world, ("pods", "10.64.0.0/14")))


def test_range_that_no_cluster_uses_goes(world):
    world.ask("PATCH", SUBNET, ranges(world))
    assert world.ask("GET", SUBNET)["secondaryIpRanges"] == []


@pytest.fixture
def slow(tmp_path: Path) -> Iterator[World]:
    """Yield a world in which a network is being deleted."""
    with World(tmp_path / "slow", seconds={"delete": 100.0}) as made:
        made.ask("POST", f"{COMPUTE}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        made.ask("DELETE", NET)
        yield made


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("DELETE", NET, None),
        ("PATCH", NET, {"routingConfig": {"routingMode": "GLOBAL"}}),
        ("POST", f"{COMPUTE}/global/firewalls", {"name": "a", "network": FULL, "allowed": [{"IPProtocol": "tcp"}]}),
        ("POST", f"{COMPUTE}/regions/us-central2/routers", {"name": "a", "network": FULL}),
        (
            "POST",
            f"{COMPUTE}/regions/us-central2/subnetworks",
            {"name": "a", "network": FULL, "ipCidrRange": "10.0.0.0/20"},
        ),
    ],
)
def test_network_that_is_being_deleted_takes_nothing_new(slow, method, path, body):
    status, word, text = slow.refusal(method, path, body)
    assert (status, word) == NOT_READY
    assert text == f"The resource '{FULL}' is not ready"
    slow.pass_time(101)
    assert slow.cloud.inventory() == []


def test_network_that_was_deleted_can_be_made_and_used_again(slow):
    slow.pass_time(101)
    assert slow.refusal("DELETE", NET)[:2] == (404, "notFound")
    slow.ask("POST", f"{COMPUTE}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
    slow.ask("POST", f"{COMPUTE}/regions/us-central2/routers", {"name": "a", "network": FULL})


def test_cluster_in_a_subnet_that_is_being_deleted_is_refused(tmp_path):
    with World(tmp_path, seconds={"delete": 100.0}) as world:
        world.network()
        world.ask("DELETE", SUBNET)
        asked = {"name": "one", "initialNodeCount": 1, "network": "net", "subnetwork": "subnet"}
        clusters = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
        assert world.refusal("POST", clusters, {"cluster": asked})[0] == 404
