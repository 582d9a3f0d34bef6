"""Fields of TPU VMs and queued resources of the emulator in both API versions, and maintenance.

The alpha version lets users start maintenance.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.tpu import nodes as tpu_nodes
from tpubox.google.tpu import vm_faults
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.settings import number_of

PLACE = f"projects/{PROJECT}/locations/us-central2-b"
V2, ALPHA = f"tpu/v2/{PLACE}", f"tpu/v2alpha1/{PLACE}"
DISK = f"projects/{PROJECT}/zones/us-central2-b/disks/disk"
V4_8 = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}
V4_32 = {"acceleratorType": "v4-32", "runtimeVersion": "tpu-ubuntu2204-base"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, seconds={"ADVANCE": 10.0, "DELETE_QUEUED_RESOURCE": 5.0}) as made:
        yield made


def queue(world: World, zone: str = V2, node: dict[str, Any] = V4_8, **more: Any) -> Any:
    """Request two slices, and wait until they run."""
    several = {"nodeCount": 2, "nodeIdPrefix": "vm"}
    word = "multisliceParams" if zone == V2 else "multiNodeParams"
    body = {"tpu": {"nodeSpec": [{"parent": PLACE, word: several, "node": node}]}, **more}
    operation = world.ask("POST", f"{zone}/queuedResources", body, queuedResourceId="wish")
    world.pass_time(10)
    world.pass_time(10)
    return operation


def queued(world: World, zone: str = V2) -> Any:
    return world.ask("GET", f"{zone}/queuedResources/wish")


def vm(world: World, name: str = "vm", zone: str = V2) -> Any:
    return world.ask("GET", f"{zone}/nodes/{name}")


def test_each_state_of_a_queued_resource_has_its_data(tmp_path):
    seconds = {"CREATE_QUEUED_RESOURCE": 5.0, "ADVANCE": 10.0, "DELETE_QUEUED_RESOURCE": 5.0}
    with World(tmp_path, seconds=seconds) as world:
        body = {"tpu": {"nodeSpec": [{"nodeId": "vm", "node": V4_8}]}}
        world.ask("POST", f"{V2}/queuedResources", body, queuedResourceId="wish")
        seen = [queued(world)["state"]]
        for passing in (5, 10, 10):
            world.pass_time(passing)
            seen.append(queued(world)["state"])
        tpu_nodes.preempt(world.cloud, f"{PLACE}/nodes/vm")
        for passing in (1, 10):
            world.pass_time(passing)
            seen.append(queued(world)["state"])
        world.ask("DELETE", f"{V2}/queuedResources/wish")
        seen.append(queued(world)["state"])
    assert seen == [
        {"state": "CREATING", "stateInitiator": "USER", "creatingData": {}},
        {"state": "ACCEPTED", "stateInitiator": "SERVICE", "acceptedData": {}},
        {"state": "PROVISIONING", "stateInitiator": "SERVICE", "provisioningData": {}},
        {"state": "ACTIVE", "stateInitiator": "SERVICE", "activeData": {}},
        {"state": "SUSPENDING", "stateInitiator": "SERVICE", "suspendingData": {}},
        {"state": "SUSPENDED", "stateInitiator": "SERVICE", "suspendedData": {}},
        {"state": "DELETING", "stateInitiator": "USER", "deletingData": {}},
    ]


def test_queued_resource_that_failed_says_why_in_its_data(world):
    world.cloud.faults.set(Fault("fail", "^PROVISION ", message="Bad rack."))
    queue(world)
    error = {"code": 13, "message": "Bad rack."}
    assert queued(world)["state"] == {
        "state": "FAILED",
        "stateInitiator": "SERVICE",
        "failedData": {"error": error},
    }


def test_request_that_was_taken_is_answered_as_accepted(world):
    operation = queue(world)
    told = world.ask("GET", f"tpu/v2/{operation['name']}")
    assert told["response"]["state"]["state"] == "ACCEPTED"
    assert told["metadata"]["apiVersion"] == "v2"


def test_vm_of_a_spot_request_says_who_made_it_and_what_google_chose(world):
    queue(world, spot={})
    told = vm(world, "vm-1")
    assert told["queuedResource"] == f"{PLACE}/queuedResources/wish"
    assert told["multisliceNode"] is True
    assert told["schedulingConfig"] == {"spot": True}
    assert told["apiVersion"] == "V2"
    assert told["networkConfig"] == {
        "network": f"projects/{PROJECT}/global/networks/default",
        "subnetwork": f"projects/{PROJECT}/regions/us-central2/subnetworks/default",
    }
    assert told["serviceAccount"] == {
        "email": f"{number_of(PROJECT)}-compute@developer.gserviceaccount.com",
        "scope": [
            f"https://www.googleapis.com/auth/{scope}"
            for scope in (
                *("devstorage.read_write", "logging.write", "service.management", "servicecontrol", "cloud-platform"),
                "pubsub",
            )
        ],
    }
    assert told["cidrBlock"] == "127.77.0.0/17"


def test_vm_says_what_was_sent_where_google_has_no_choice(world):
    world.network()
    sent = {
        **V4_8,
        "description": "one",
        "labels": {"a": "b"},
        "metadata": {"c": "d"},
        "tags": ["e"],
        "cidrBlock": "10.0.0.8/29",
        "serviceAccount": {"email": "me@elsewhere.iam.gserviceaccount.com", "scope": ["https://scope"]},
        "shieldedInstanceConfig": {"enableSecureBoot": True},
        "bootDiskConfig": {"customerEncryptionKey": {"kmsKeyName": "key"}},
        "networkConfigs": [
            {"network": f"projects/{PROJECT}/global/networks/net", "enableExternalIps": True, "canIpForward": True},
            {"subnetwork": f"projects/{PROJECT}/regions/us-central2/subnetworks/subnet", "queueCount": 4},
        ],
        "schedulingConfig": {"preemptible": True},
    }
    world.ask("POST", f"{V2}/nodes", {**sent, "dataDisks": [{"sourceDisk": DISK}]}, nodeId="vm")
    told = vm(world)
    assert {name: told[name] for name in sent} == sent
    assert told["dataDisks"] == [{"sourceDisk": DISK, "mode": "READ_WRITE"}]
    assert "networkConfig" not in told
    assert told["networkEndpoints"][0]["accessConfig"]["externalIp"]


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"networkConfig": {"network": "a"}, "networkConfigs": [{"network": "b"}]}, "Only one of network_config"),
        ({"description": "x" * 513}, "512"),
        ({"cidrBlock": "10.0.0.0/20"}, "/29"),
        ({"acceleratorConfig": {"type": "V4", "topology": "2x2x2"}}, "not the same accelerator"),
        ({"dataDisks": [{"sourceDisk": "disk"}]}, "Invalid source disk 'disk'"),
        ({"dataDisks": [{"sourceDisk": DISK.replace("us-central2-b", "us-east1-b")}]}, "not in zone us-central2-b"),
        ({"labels": {"a": "r1.9"}}, 'value "r1.9" contains invalid character \'.\' at index 2 for key "a"'),
        ({"labels": {"tpukit.dev/job": "a"}}, "key \"tpukit.dev/job\" contains invalid character '.' at index 6"),
        ({"labels": {"a": "A"}}, "invalid character 'A'"),
        ({"labels": {"1a": "a"}}, "does not begin with a letter"),
        ({"labels": {"a": "x" * 64}}, "longer than 63"),
        ({"labels": {f"l{number}": "" for number in range(65)}}, "more than 64"),
        ({"tags": ["One"]}, "Invalid network tag 'One'"),
        ({"metadata": {"a.b": "c"}}, "Invalid metadata key 'a.b'"),
        ({"metadata": {"a": "x" * (256 * 1024 + 1)}}, "longer than 262144 bytes"),
        ({"metadata": {str(number): "x" * 256 * 1024 for number in range(2)}}, "524288 bytes in all"),
    ],
)
@pytest.mark.parametrize("way", ["nodes", "queuedResources"])
def test_vm_that_could_never_be_is_refused_when_it_is_asked_for(world, way, more, words):
    node = {**V4_8, **more}
    body = node if way == "nodes" else {"tpu": {"nodeSpec": [{"nodeId": "vm", "node": node}]}}
    query = {"nodeId": "vm"} if way == "nodes" else {"queuedResourceId": "wish"}
    status, word, text = world.refusal("POST", f"{V2}/{way}", body, **query)
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert words in text
    assert world.cloud.inventory() == []


def test_accelerator_may_be_named_in_both_ways_if_they_agree(world):
    both = {**V4_8, "acceleratorConfig": {"type": "V4", "topology": "2x2x1"}}
    world.ask("POST", f"{V2}/nodes", both, nodeId="vm")


def test_vm_takes_nothing_of_what_google_alone_says_of_one(world):
    told = {
        "queuedResource": "mine",
        "multisliceNode": True,
        "healthDescription": "fine",
        "state": "STOPPED",
        "id": "1",
    }
    world.ask("POST", f"{V2}/nodes", {**V4_8, **told}, nodeId="vm")
    made = vm(world)
    assert not {"queuedResource", "multisliceNode", "healthDescription"} & set(made)
    assert (made["state"], made["id"] == "1") == ("READY", False)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"labels": {"a": "b.c"}}, "invalid character '.'"),
        ({"tags": ["-a"]}, "Invalid network tag"),
        ({"metadata": {"a b": "c"}}, "Invalid metadata key"),
    ],
)
def test_change_of_a_vm_to_what_it_could_not_be_is_refused(world, change, words):
    world.ask("POST", f"{V2}/nodes", V4_8, nodeId="vm")
    before = vm(world)
    assert words in world.refusal("PATCH", f"{V2}/nodes/vm", change, updateMask=next(iter(change)))[2]
    assert vm(world) == before


def test_request_for_two_vms_of_one_name_is_refused(world):
    specs = [{"parent": PLACE, "nodeId": "vm", "node": V4_8}] * 2
    text = world.refusal("POST", f"{V2}/queuedResources", {"tpu": {"nodeSpec": specs}}, queuedResourceId="wish")[2]
    assert "must be unique, not 'vm' twice" in text


def test_request_for_disks_that_several_hosts_would_write_is_refused_at_once(world):
    node = {**V4_32, "dataDisks": [{"sourceDisk": DISK}]}
    body = {"tpu": {"nodeSpec": [{"nodeId": "vm", "node": node}]}}
    assert "READ_ONLY" in world.refusal("POST", f"{V2}/queuedResources", body, queuedResourceId="wish")[2]


def test_what_alpha_made_is_told_by_each_version_in_its_own_fields(world):
    disk = {"customerEncryptionKey": {"kmsKeyName": "key"}, "diskSizeGb": "200"}
    node = {**V4_8, "autocheckpointEnabled": True, "bootDiskConfig": disk}
    operation = queue(world, ALPHA, node, bestEffort={}, provisioningModel="STANDARD")
    alpha, plain = queued(world, ALPHA), queued(world)
    assert alpha["provisioningModel"] == "STANDARD"
    assert alpha["bestEffort"] == {}
    assert alpha["tpu"]["nodeSpec"][0]["multiNodeParams"] == {"nodeCount": 2, "nodeIdPrefix": "vm"}
    assert plain["tpu"]["nodeSpec"][0]["multisliceParams"] == {"nodeCount": 2, "nodeIdPrefix": "vm"}
    assert not {"provisioningModel", "bestEffort"} & set(plain)
    alpha, plain = vm(world, "vm-0", ALPHA), vm(world, "vm-0")
    assert (alpha["autocheckpointEnabled"], alpha["bootDiskConfig"]) == (True, disk)
    assert "autocheckpointEnabled" not in plain
    assert plain["bootDiskConfig"] == {"customerEncryptionKey": {"kmsKeyName": "key"}}
    assert alpha["apiVersion"] == plain["apiVersion"] == "V2_ALPHA1"
    told = world.ask("GET", f"tpu/v2alpha1/{operation['name']}")
    assert told["response"]["@type"] == "type.googleapis.com/google.cloud.tpu.v2alpha1.QueuedResource"
    assert [len(world.ask("GET", f"{zone}/queuedResources")["queuedResources"]) for zone in (V2, ALPHA)] == [1, 1]


def test_vm_that_v2_made_is_shown_by_alpha_too(world):
    world.ask("POST", f"{V2}/nodes", V4_8, nodeId="vm")
    assert [one["apiVersion"] for one in world.ask("GET", f"{ALPHA}/nodes")["nodes"]] == ["V2_ALPHA1"]
    assert vm(world)["apiVersion"] == "V2"


def test_maintenance_of_a_queued_resource_is_announced_and_performed_node_by_node(world):
    queue(world)
    assert world.ask("GET", f"{ALPHA}/queuedResources/wish:getMaintenanceInfo") == {}
    for name in ("vm-0", "vm-1"):
        vm_faults.strike(world.cloud, "maintenance", name, notice=1000, seconds=60)
    told = world.ask("GET", f"{ALPHA}/queuedResources/wish:getMaintenanceInfo")["nodeUpcomingMaintenances"]
    assert [(one["nodeName"], one["nodeUid"]) for one in told] == [
        (name, vm(world, name)["id"]) for name in ("vm-0", "vm-1")
    ]
    assert told[0]["upcomingMaintenance"]["canReschedule"] is True
    path = f"{ALPHA}/queuedResources/wish:performMaintenanceQueuedResource"
    operation = world.ask("POST", path, {"nodeNames": ["vm-1"]})
    world.pass_time(1)
    seen = [vm(world, name)["upcomingMaintenance"]["maintenanceStatus"] for name in ("vm-0", "vm-1")]
    assert seen == ["PENDING", "ONGOING"]
    assert vm(world, "vm-1")["healthDescription"]
    assert queued(world)["state"]["state"] == "ACTIVE"
    world.pass_time(60)
    healed = vm(world, "vm-1")
    assert (healed["health"], "upcomingMaintenance" in healed) == ("HEALTHY", False)
    assert "healthDescription" not in healed
    assert vm(world, "vm-0")["health"] == "UNHEALTHY_MAINTENANCE"
    done = world.ask("GET", f"tpu/v2alpha1/{operation['name']}")
    assert done["response"]["name"] == f"{PLACE}/queuedResources/wish"


@pytest.mark.parametrize(
    ("body", "word"),
    [
        ({"nodeNames": ["vm-0"]}, "FAILED_PRECONDITION"),  # no maintenance is announced for it
        ({"nodeNames": ["vm-1", "vm-0"]}, "FAILED_PRECONDITION"),
        ({"nodeNames": ["vm-7"]}, "INVALID_ARGUMENT"),
        ({"nodeNames": []}, "INVALID_ARGUMENT"),
        ({"nodes": ["vm-1"]}, "INVALID_ARGUMENT"),
    ],
)
def test_maintenance_that_cannot_be_performed_is_refused_for_all_nodes(world, body, word):
    queue(world)
    vm_faults.strike(world.cloud, "maintenance", "vm-1", notice=1000)
    path = "queuedResources/wish:performMaintenanceQueuedResource"
    assert world.refusal("POST", f"{ALPHA}/{path}", body)[1] == word
    assert world.refusal("POST", f"{V2}/{path}", body)[0] == 404
    world.pass_time(1)
    assert vm(world, "vm-1")["upcomingMaintenance"]["maintenanceStatus"] == "PENDING"


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("nodes/vm-1:simulateMaintenanceEvent", {"workerIds": ["0"]}),
        ("nodes/vm-1:performMaintenance", {}),
        ("queuedResources/wish:performMaintenanceQueuedResource", {"nodeNames": ["vm-1"]}),
    ],
)
def test_maintenance_whose_operation_fails_does_not_begin(world, path, body):
    queue(world)
    vm_faults.strike(world.cloud, "maintenance", "vm-1", notice=1000)
    before = vm(world, "vm-1")
    world.cloud.faults.set(Fault("fail", ".*", times=1))
    operation = world.ask("POST", f"{ALPHA}/{path}", body)
    world.pass_time(1)
    assert world.ask("GET", f"tpu/v2alpha1/{operation['name']}")["error"]
    assert vm(world, "vm-1") == before


def test_simulated_maintenance_takes_the_first_worker_that_is_named(world):
    world.ask("POST", f"{V2}/nodes", V4_32, nodeId="vm")
    world.ask("POST", f"{ALPHA}/nodes/vm:simulateMaintenanceEvent", {"workerIds": ["2", "1"]})
    world.pass_time(1)
    doc = world.cloud.state.get("vm", f"{PLACE}/nodes/vm")
    assert [tpu_nodes.runs(doc, worker) for worker in range(4)] == [True, True, False, True]
