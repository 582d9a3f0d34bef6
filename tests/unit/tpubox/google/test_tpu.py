"""TPU VMs and queued resources of the emulator, through all of their states."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.compute import stock_and_quota
from tpubox.google.tpu import nodes as tpu_nodes
from tpubox.google.tpu import vm_faults
from tpubox.google.wire.faults import Fault

ZONE = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b"
V4_8 = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
V4_32 = {"acceleratorType": "v4-32", "runtimeVersion": "tpu-ubuntu2204-base"}
SECONDS = {"CREATE_NODE": 60.0, "DELETE_NODE": 30.0, "STOP_NODE": 20.0, "START_NODE": 40.0, "ADVANCE": 10.0}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, seconds=SECONDS) as made:
        yield made


def make(world: World, name: str = "vm", node: dict[str, Any] = V4_8) -> Any:
    return world.ask("POST", f"{ZONE}/nodes", node, nodeId=name)


def state(world: World, name: str = "vm") -> str:
    return str(world.ask("GET", f"{ZONE}/nodes/{name}")["state"])


def queue(world: World, name: str = "wish", node: dict[str, Any] = V4_32, count: int = 1, **more: Any) -> Any:
    params = {"nodeCount": count, "nodeIdPrefix": name}
    spec = {"parent": ZONE.removeprefix("tpu/v2/"), "multisliceParams": params, "node": node}
    query = {"queuedResourceId": name, "requestId": more.pop("requestId", "")}
    return world.ask("POST", f"{ZONE}/queuedResources", {"tpu": {"nodeSpec": [spec]}, **more}, **query)


def queued(world: World, name: str = "wish") -> str:
    return str(world.ask("GET", f"{ZONE}/queuedResources/{name}")["state"]["state"])


def test_vm_goes_through_its_life(world):
    operation = make(world)
    seen = [state(world)]
    world.pass_time(60)
    seen.append(state(world))
    world.ask("POST", f"{ZONE}/nodes/vm:stop", {})
    seen.append(state(world))
    world.pass_time(20)
    seen.append(state(world))
    world.ask("POST", f"{ZONE}/nodes/vm:start", {})
    seen.append(state(world))
    world.pass_time(40)
    seen.append(state(world))
    world.ask("DELETE", f"{ZONE}/nodes/vm")
    seen.append(state(world))
    world.pass_time(30)
    assert seen == ["CREATING", "READY", "STOPPING", "STOPPED", "STARTING", "READY", "DELETING"]
    assert world.refusal("GET", f"{ZONE}/nodes/vm")[0] == 404
    told = world.ask("GET", f"tpu/v2/{operation['name']}")
    assert told["done"]
    assert told["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2.Node"
    assert told["response"]["state"] == "READY"


def test_vm_has_an_endpoint_for_every_host(world):
    make(world, node=V4_32)
    assert len(world.ask("GET", f"{ZONE}/nodes/vm")["networkEndpoints"]) == 4


def test_vm_of_several_hosts_cannot_be_stopped(world):
    make(world, node=V4_32)
    world.pass_time(60)
    assert world.refusal("POST", f"{ZONE}/nodes/vm:stop", {})[1] == "FAILED_PRECONDITION"


@pytest.mark.parametrize(
    ("node", "words"),
    [
        ({**V4_8, "acceleratorType": "v4-9"}, "v4-9"),
        ({**V4_8, "acceleratorType": "v5litepod-16"}, "not available in zone us-central2-b"),
        ({**V4_8, "runtimeVersion": "tpu-vm-base"}, "Runtime version 'tpu-vm-base' was not found"),
        ({"acceleratorConfig": {"type": "V4", "topology": "2x3x1"}, "runtimeVersion": "tpu-ubuntu2204-base"}, "2x3x1"),
        ({**V4_8, "chips": 4}, 'Unknown name "chips"'),
    ],
)
def test_vm_that_is_not_offered_is_refused(world, node, words):
    status, _, text = world.refusal("POST", f"{ZONE}/nodes", node, nodeId="vm")
    assert status == 400
    assert words in text


def test_vm_without_capacity_fails_and_is_gone(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 3)
    operation = make(world)
    world.pass_time(60)
    told = world.ask("GET", f"tpu/v2/{operation['name']}")
    assert told["error"]["code"] == 8
    assert "another zone where Cloud TPU Nodes are offered" in told["error"]["message"]
    assert world.refusal("GET", f"{ZONE}/nodes/vm")[0] == 404


def test_quota_is_told_apart_from_capacity_by_its_words(world):
    stock_and_quota.limit_quota(world.cloud, "us-central2", "v4", 0, spot=True)
    spot = {**V4_8, "schedulingConfig": {"spot": True}}
    status, word, text = world.refusal("POST", f"{ZONE}/nodes", spot, nodeId="vm")
    assert (status, word) == (429, "RESOURCE_EXHAUSTED")
    assert text.startswith("Quota limit 'TPUV4PreemptiblePerProjectPerRegionForTPUAPI' has been exceeded. Limit: 0")
    make(world)


def test_preempted_vm_stays_and_counts_until_it_is_deleted(world):
    stock_and_quota.limit_quota(world.cloud, "us-central2", "v4", 4)
    make(world)
    world.pass_time(60)
    world.cloud.faults.set(Fault("preempt", "nodes/vm$", seconds=100))
    world.pass_time(99)
    assert state(world) == "READY"
    world.pass_time(1)
    assert state(world) == "PREEMPTED"
    assert world.refusal("POST", f"{ZONE}/nodes", V4_8, nodeId="next")[0] == 429
    world.ask("DELETE", f"{ZONE}/nodes/vm")
    world.pass_time(30)
    make(world, "next")


@pytest.mark.parametrize("strike", ["preempt", "repair", "maintenance"])
def test_fault_of_one_vm_does_not_befall_the_vm_recreated_under_its_name(world, strike):
    """The hosts stopped at once, and the owner recreated the TPU VM before the fault was over."""
    make(world)
    world.pass_time(60)
    vm_faults.strike(world.cloud, strike, "vm", **({"grace": 300.0} if strike == "preempt" else {"seconds": 300.0}))
    if strike == "preempt":
        vm_faults.hosts_went(world.cloud, f"{ZONE.removeprefix('tpu/v2/')}/nodes/vm")
        assert state(world) == "PREEMPTED"
    world.ask("DELETE", f"{ZONE}/nodes/vm")
    world.pass_time(40)
    make(world)
    world.pass_time(60)
    lasting = {"preempt": {"grace": 1000.0}}.get(strike, {"seconds": 1000.0})
    vm_faults.strike(world.cloud, strike, "vm", **lasting)
    world.pass_time(1)
    before = world.ask("GET", f"{ZONE}/nodes/vm")
    world.pass_time(400)
    assert world.ask("GET", f"{ZONE}/nodes/vm") == before


def test_preemption_by_chance_is_thrown_once_for_each_vm(tmp_path):
    with World(tmp_path, seed=3) as world:
        for number in range(40):
            make(world, f"vm-{number}")
        world.cloud.faults.set(Fault("preempt", chance=0.3, name="spot"))
        world.pass_time(1)
        first = [state(world, f"vm-{number}") for number in range(40)]
        for _ in range(50):
            world.pass_time(10)
        assert [state(world, f"vm-{number}") for number in range(40)] == first
        assert 4 < first.count("PREEMPTED") < 25


def test_queued_resource_goes_through_its_life(world):
    queue(world, count=2)
    world.pass_time(0)
    assert queued(world) == "ACCEPTED"
    world.pass_time(10)
    assert (queued(world), state(world, "wish-1")) == ("PROVISIONING", "CREATING")
    world.pass_time(10)
    assert (queued(world), state(world, "wish-1")) == ("ACTIVE", "READY")
    tpu_nodes.preempt(world.cloud, f"{ZONE.removeprefix('tpu/v2/')}/nodes/wish-0")
    world.pass_time(1)
    told = world.ask("GET", f"{ZONE}/queuedResources/wish")["state"]
    assert (told["state"], told["stateInitiator"]) == ("SUSPENDING", "SERVICE")
    world.pass_time(10)
    assert queued(world) == "SUSPENDED"
    assert world.ask("GET", f"{ZONE}/nodes") == {"nodes": []}
    world.pass_time(10_000)
    assert queued(world) == "SUSPENDED"
    world.ask("POST", f"{ZONE}/queuedResources/wish:reset", {})
    world.pass_time(10)
    world.pass_time(10)
    assert queued(world) == "ACTIVE"


def test_queued_resource_waits_for_capacity(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 16)
    make(world, node=V4_32)
    world.pass_time(60)
    queue(world)
    world.pass_time(10)
    assert queued(world) == "WAITING_FOR_RESOURCES"
    world.pass_time(100)
    assert queued(world) == "WAITING_FOR_RESOURCES"
    world.ask("DELETE", f"{ZONE}/nodes/vm")
    world.pass_time(30)
    world.pass_time(1)
    world.pass_time(10)
    assert queued(world) == "ACTIVE"


def test_queued_resource_that_waited_too_long_fails_and_stays(world):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 0)
    queue(world, queueingPolicy={"validUntilDuration": "60s"})
    for _ in range(70):
        world.pass_time(1)
    told = world.ask("GET", f"{ZONE}/queuedResources/wish")["state"]
    assert told["state"] == "FAILED"
    assert "expired" in told["failedData"]["error"]["message"]
    world.ask("DELETE", f"{ZONE}/queuedResources/wish")
    world.pass_time(1)
    assert world.cloud.inventory() == []


def test_queued_resource_with_nodes_goes_only_by_force(world):
    queue(world)
    world.pass_time(10)
    world.pass_time(10)
    assert world.refusal("DELETE", f"{ZONE}/queuedResources/wish")[1] == "FAILED_PRECONDITION"
    world.ask("DELETE", f"{ZONE}/queuedResources/wish", force="true")
    world.pass_time(1)
    assert world.cloud.inventory() == []


def test_queued_resource_whose_nodes_were_deleted_is_suspended_and_goes_without_force(world):
    """Google's own sample does this: python-docs-samples, tpu/test_queued_resources.py."""
    queue(world, count=2)
    world.pass_time(10)
    world.pass_time(10)
    world.ask("DELETE", f"{ZONE}/nodes/wish-0")
    world.pass_time(30)
    assert queued(world) == "ACTIVE"
    assert world.refusal("DELETE", f"{ZONE}/queuedResources/wish")[1] == "FAILED_PRECONDITION"
    world.ask("DELETE", f"{ZONE}/nodes/wish-1")
    world.pass_time(30)
    told = [world.ask("GET", f"{ZONE}/queuedResources/wish")["state"]]
    world.pass_time(10)
    told.append(world.ask("GET", f"{ZONE}/queuedResources/wish")["state"])
    assert told == [
        {"state": "SUSPENDING", "stateInitiator": "USER", "suspendingData": {}},
        {"state": "SUSPENDED", "stateInitiator": "USER", "suspendedData": {}},
    ]
    world.ask("DELETE", f"{ZONE}/queuedResources/wish")
    world.pass_time(1)
    assert world.cloud.inventory() == []


def test_queued_resource_suspended_by_deletion_comes_back_when_reset(world):
    queue(world)
    world.pass_time(10)
    world.pass_time(10)
    world.ask("DELETE", f"{ZONE}/nodes/wish-0")
    world.pass_time(30)
    world.pass_time(10)
    world.ask("POST", f"{ZONE}/queuedResources/wish:reset", {})
    world.pass_time(10)
    world.pass_time(10)
    assert (queued(world), state(world, "wish-0")) == ("ACTIVE", "READY")


def test_node_deleted_while_its_queued_resource_provisions_does_not_come_back(world):
    queue(world, count=2)
    world.pass_time(10)
    world.ask("DELETE", f"{ZONE}/nodes/wish-0")
    world.pass_time(10)
    assert (queued(world), state(world, "wish-0"), state(world, "wish-1")) == ("ACTIVE", "DELETING", "READY")
    world.pass_time(20)
    assert [node["name"].rpartition("/")[2] for node in world.ask("GET", f"{ZONE}/nodes")["nodes"]] == ["wish-1"]


def test_deletion_of_a_node_ends_without_the_one_that_a_reset_made_meanwhile(world):
    queue(world)
    world.pass_time(10)
    world.pass_time(10)
    world.ask("DELETE", f"{ZONE}/nodes/wish-0")
    world.ask("POST", f"{ZONE}/queuedResources/wish:reset", {})
    for _ in range(3):
        world.pass_time(10)
    assert (queued(world), state(world, "wish-0")) == ("ACTIVE", "READY")


def test_queued_resource_that_finds_one_name_taken_makes_no_other_node(world):
    make(world, "wish-1")
    world.pass_time(60)
    queue(world, count=2)
    world.pass_time(10)
    assert queued(world) == "FAILED"
    assert [node["name"].rpartition("/")[2] for node in world.ask("GET", f"{ZONE}/nodes")["nodes"]] == ["wish-1"]


def test_same_request_twice_is_one(world):
    first = queue(world, requestId="0f8fad5b")
    assert queue(world, requestId="0f8fad5b")["name"] == first["name"]
    spec = {"nodeId": "n", "node": V4_8}
    body = {"tpu": {"nodeSpec": [spec]}}
    assert world.refusal("POST", f"{ZONE}/queuedResources", body, queuedResourceId="wish")[0] == 409


def test_suspended_queued_resource_still_uses_quota(world):
    stock_and_quota.limit_quota(world.cloud, "us-central2", "v4", 16, spot=True)
    queue(world, spot={})
    world.pass_time(10)
    world.pass_time(10)
    world.cloud.faults.set(Fault("preempt", times=1))
    world.pass_time(1)
    world.pass_time(10)
    assert queued(world) == "SUSPENDED"
    body = {"tpu": {"nodeSpec": [{"nodeId": "n", "node": V4_8}]}, "spot": {}}
    assert world.refusal("POST", f"{ZONE}/queuedResources", body, queuedResourceId="more")[0] == 429


def test_provisioning_that_fails_says_why(world):
    world.cloud.faults.set(Fault("fail", "^PROVISION ", message="Bad rack."))
    queue(world)
    world.pass_time(10)
    world.pass_time(10)
    told = world.ask("GET", f"{ZONE}/queuedResources/wish")["state"]
    assert (told["state"], told["failedData"]["error"]["message"]) == ("FAILED", "Bad rack.")
    assert world.ask("GET", f"{ZONE}/nodes") == {"nodes": []}


def test_zone_lists_what_it_offers(world):
    types = [one["type"] for one in world.ask("GET", f"{ZONE}/acceleratorTypes")["acceleratorTypes"]]
    assert "v4-32" in types
    assert not [one for one in types if not one.startswith("v4-")]
    assert world.ask("GET", f"{ZONE}/runtimeVersions/tpu-ubuntu2204-base")["version"] == "tpu-ubuntu2204-base"
    zones = [one["locationId"] for one in world.ask("GET", f"tpu/v2/projects/{PROJECT}/locations")["locations"]]
    assert "us-central2-b" in zones
    assert "us-central2-a" not in zones


def test_time_that_passes_over_many_vms_reads_none_of_them_while_nothing_changes(world, monkeypatch):
    """The check runs ten times a second, so an idle sandbox must cost next to nothing."""
    make(world)
    world.pass_time(100)
    world.pass_time(1)
    read: list[str] = []
    everything = world.cloud.state.all
    monkeypatch.setattr(world.cloud.state, "all", lambda kind, prefix="": read.append(kind) or everything(kind, prefix))
    world.pass_time(1)
    assert "vm" not in read
    world.cloud.faults.set(Fault("preempt", times=1))
    world.pass_time(1)
    assert "vm" in read
    assert [vm["state"] for vm in everything("vm").values()] == ["PREEMPTED"]
