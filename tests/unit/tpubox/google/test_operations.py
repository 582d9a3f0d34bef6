"""Operations and changes parsed by Google's typed clients, for every API."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.compute import stock_and_quota
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.settings import Hooks, Pool
from tpubox.google.wire.sources import EMULATOR

REGISTRY = f"artifact_registry/v1/projects/{PROJECT}/locations/us-central1"
SERVICES = f"service_usage/v1/projects/{PROJECT}/services"
DATABASES = f"firestore/v1/projects/{PROJECT}/databases"
BOARDS = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1/tensorboards"
VMS = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes"
CONTAINER = f"container/v1/projects/{PROJECT}/locations"
COMPUTE = f"compute/v1/projects/{PROJECT}"
DATABASE = {"locationId": "nam5", "type": "FIRESTORE_NATIVE"}
VM = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def kind_of(message: Any) -> str:
    return str(message["@type"]).rpartition(".")[2]


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "fields"),
    [
        ("POST", f"{REGISTRY}/repositories", {"format": "DOCKER"}, {"repositoryId": "images"}, set()),
        ("POST", f"{SERVICES}/tpu.googleapis.com:enable", {}, {}, {"resourceNames"}),
        ("POST", DATABASES, DATABASE, {"databaseId": "jobs"}, set()),
        ("POST", BOARDS, {"displayName": "board"}, {}, {"genericMetadata"}),
        ("POST", VMS, VM, {"nodeId": "one"}, {"apiVersion", "createTime", "endTime", "target", "verb"}),
    ],
)
def test_operation_tells_of_itself_with_the_fields_that_its_message_has_alone(world, method, path, body, query, fields):
    """Polling clients refuse unknown fields: https://googleapis.dev has the messages of each API."""
    operation = world.ask(method, path, body, **query)
    world.pass_time(2000)
    api, version = path.split("/")[:2]
    polled = world.ask("GET", f"{api}/{version}/{operation['name']}")
    assert polled["done"]
    assert set(polled["metadata"]) == {"@type", *fields}


@pytest.mark.parametrize(
    ("call", "body", "kind", "field"),
    [
        ("/tpu.googleapis.com:enable", {}, "EnableServiceResponse", "service"),
        ("/tpu.googleapis.com:disable", {}, "DisableServiceResponse", "service"),
        (":batchEnable", {"serviceIds": ["tpu.googleapis.com"]}, "BatchEnableServicesResponse", "services"),
    ],
)
def test_switching_a_service_answers_with_the_message_of_that_call(world, call, body, kind, field):
    response = world.ask("POST", f"{SERVICES}{call}", body)["response"]
    assert (kind_of(response), field in response) == (kind, True)


def test_deleted_database_is_the_answer_of_its_deletion(world):
    world.ask("POST", DATABASES, DATABASE, databaseId="jobs")
    operation = world.ask("DELETE", f"{DATABASES}/jobs")
    assert (kind_of(operation["metadata"]), kind_of(operation["response"])) == ("DeleteDatabaseMetadata", "Database")


def test_vertex_operations_are_found_where_its_client_asks_for_them(world):
    name = world.ask("POST", BOARDS, {"displayName": "board"})["name"]
    assert world.ask("GET", f"vertex_ai/ui/{name}")["name"] == name


def test_gke_operation_that_failed_has_the_number_of_googles_own_codes(world):
    pools = world.cluster()
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 0)
    name = world.ask("POST", pools, pool())["name"]
    world.pass_time(2000)
    assert world.ask("GET", f"{CONTAINER}/us-central2/operations/{name}")["error"]["code"] == 8  # RESOURCE_EXHAUSTED


def test_gke_operations_of_all_locations_are_listed_together(world):
    world.cluster()
    here = world.ask("GET", f"{CONTAINER}/us-central2/operations")["operations"]
    assert here
    assert world.ask("GET", f"{CONTAINER}/-/operations")["operations"] == here


def test_compute_operation_is_waited_for(world):
    name = world.ask("POST", f"{COMPUTE}/global/networks", {"name": "net"})["name"]
    assert world.ask("POST", f"{COMPUTE}/global/operations/{name}/wait")["status"] == "DONE"


@pytest.fixture
def things(world: World) -> dict[str, str]:
    """Return one resource of each kind that can be changed, by kind."""
    pools = world.cluster()
    world.ask("POST", pools, pool())
    world.ask("POST", DATABASES, DATABASE, databaseId="jobs")
    world.ask("POST", VMS, VM, nodeId="one")
    board = world.ask("POST", BOARDS, {"displayName": "board", "labels": {"a": "1", "b": "2"}})["response"]["name"]
    world.pass_time(5000)
    cluster = pools.removesuffix("/nodePools")
    return {
        "cluster": cluster,
        "pool": f"{pools}/tpu-0",
        "subnetwork": f"{COMPUTE}/regions/us-central2/subnetworks/subnet",
        "database": f"{DATABASES}/jobs",
        "vm": f"{VMS}/one",
        "board": f"vertex_ai/v1/{board}",
    }


CHANGES = {
    "cluster": ("PUT", "", {"update": {"desiredReleaseChannel": {"channel": "RAPID"}}}, {}),
    "cluster labels": ("POST", ":setResourceLabels", {"resourceLabels": {"a": "1"}}, {}),
    "pool": ("PUT", "", {"labels": {"labels": {"a": "1"}}}, {}),
    "pool management": ("POST", ":setManagement", {"management": {"autoRepair": False, "autoUpgrade": True}}, {}),
    "subnetwork": ("POST", "/setPrivateIpGoogleAccess", {"privateIpGoogleAccess": True}, {}),
    "database": ("PATCH", "", {"deleteProtectionState": "DELETE_PROTECTION_ENABLED"}, {}),
    "vm": ("PATCH", "", {"labels": {"a": "1"}}, {"updateMask": "labels"}),
    "board": ("PATCH", "", {"description": "new"}, {"updateMask": "description"}),
}


@pytest.mark.parametrize("what", CHANGES)
def test_change_that_fails_changes_nothing_and_its_operation_says_so(world, things, what):
    method, call, body, query = CHANGES[what]
    path = things[what.split()[0]]
    before = world.ask("GET", path)
    world.cloud.faults.set(Fault("fail", ".*", times=1, message="Out of luck."))
    operation = world.ask(method, path + call, body, **query)
    world.pass_time(5000)
    failed = world.cloud.state.get("operation", operation["name"].rpartition("/")[2])
    assert failed["error"]["message"] == "Out of luck."
    assert world.ask("GET", path) == before
    world.ask(method, path + call, body, **query)
    world.pass_time(5000)
    assert world.ask("GET", path) != before


@pytest.mark.parametrize("what", CHANGES)
def test_change_is_seen_at_the_end_of_its_operation_and_not_before(world, things, what):
    method, call, body, query = CHANGES[what]
    path = things[what.split()[0]]
    before = world.ask("GET", path)
    world.cloud.faults.set(Fault("slow", ".*", times=1, seconds=100.0))
    world.ask(method, path + call, body, **query)
    world.pass_time(99)
    assert world.ask("GET", path) == before
    world.pass_time(2)
    assert world.ask("GET", path) != before


def test_changes_at_once_of_different_fields_are_both_made(world, things):
    world.cloud.faults.set(Fault("slow", ".*", times=1, seconds=100.0))
    world.ask("PATCH", things["board"], {"description": "slow"}, updateMask="description")
    world.ask("PATCH", things["board"], {"displayName": "quick"}, updateMask="displayName")
    world.pass_time(101)
    found = world.ask("GET", things["board"])
    assert (found["description"], found["displayName"]) == ("slow", "quick")


def test_change_whose_hook_is_refused_is_taken_back(tmp_path):
    def refuse(_pool: Pool) -> None:
        if refusing:
            raise EMULATOR.refused(503, "Out of luck.")

    refusing = False
    with World(tmp_path, Hooks(on_pool_created=refuse)) as world:
        pools = world.cluster()
        world.ask("POST", pools, pool())
        before = world.ask("GET", f"{pools}/tpu-0")
        refusing = True
        operation = world.ask("PUT", f"{pools}/tpu-0", {"labels": {"labels": {"a": "1"}}})
        assert operation["error"]["message"] == "Out of luck."
        assert world.ask("GET", f"{pools}/tpu-0") == before


class Killed(BaseException):
    """A kill of the emulator in the middle of a hook."""


def test_change_is_taken_back_also_where_the_emulator_was_killed_before_the_hook_was_refused(tmp_path):
    outcome: BaseException | None = None

    def hook(_pool: Pool) -> None:
        if outcome:
            raise outcome

    with World(tmp_path, Hooks(on_pool_created=hook)) as world:
        pools = world.cluster()
        world.ask("POST", pools, pool())
        before = world.ask("GET", f"{pools}/tpu-0")
        outcome = Killed()
        with pytest.raises(Killed):
            world.ask("PUT", f"{pools}/tpu-0", {"labels": {"labels": {"a": "1"}}})
    outcome = EMULATOR.refused(503, "Out of luck.")
    with World(tmp_path, Hooks(on_pool_created=hook)) as world:
        world.pass_time(86400)  # a new world's clock starts again
        assert world.ask("GET", f"{pools}/tpu-0") == before


def test_service_that_fails_to_be_switched_stays_as_it_was(world):
    path = f"{SERVICES}/tpu.googleapis.com"
    world.cloud.faults.set(Fault("fail", ".*", times=1))
    assert world.ask("POST", f"{path}:disable", {})["error"]
    assert world.ask("GET", path)["state"] == "ENABLED"
    world.ask("POST", f"{path}:disable", {})
    assert world.ask("GET", path)["state"] == "DISABLED"


def test_project_metadata_that_fails_to_be_set_stays_as_it_was(world):
    fingerprint = world.ask("GET", COMPUTE)["commonInstanceMetadata"]["fingerprint"]
    world.cloud.faults.set(Fault("fail", ".*", times=1))
    body = {"fingerprint": fingerprint, "items": [{"key": "a", "value": "1"}]}
    assert world.ask("POST", f"{COMPUTE}/setCommonInstanceMetadata", body)["error"]
    assert world.ask("GET", COMPUTE)["commonInstanceMetadata"]["fingerprint"] == fingerprint


def test_pool_that_fails_to_be_resized_holds_the_chips_that_it_held(world):
    pools = world.cluster("us-central1", "us-central1-a")
    one = {"machineType": "ct5lp-hightpu-4t"}
    world.ask("POST", pools, pool("single", config=one, initialNodeCount=1, placementPolicy=None))
    (full,) = world.cloud.state.all("pool")
    before = world.cloud.state.get("pool", full)["_holds"]
    world.cloud.faults.set(Fault("fail", "SET_NODE_POOL_SIZE", times=1))
    assert world.ask("POST", f"{pools}/single:setSize", {"nodeCount": 3})["error"]
    assert world.cloud.state.get("pool", full)["_holds"] == before


@pytest.mark.parametrize(
    ("method", "path", "body", "query", "mine", "others"),
    [
        (
            "POST",
            f"{REGISTRY}/repositories",
            {"format": "DOCKER"},
            {"repositoryId": "images"},
            "us-central1",
            "us-east1",
        ),
        ("POST", BOARDS, {"displayName": "board"}, {}, "us-central1", "us-east1"),
        ("POST", VMS, VM, {"nodeId": "one"}, "us-central2-b", "us-east5-a"),
        ("POST", DATABASES, DATABASE, {"databaseId": "jobs"}, "databases/jobs", "databases/others"),
        ("POST", f"{COMPUTE}/global/networks", {"name": "net"}, {}, "global", "regions/us-central2"),
    ],
)
def test_operation_is_found_in_its_own_location_alone(world, method, path, body, query, mine, others):
    name = world.ask(method, path, body, **query)["name"]
    api = "/".join(path.split("/")[:2])
    full = f"{api}/{name}" if name.startswith("projects/") else f"{COMPUTE}/{mine}/operations/{name}"
    assert world.ask("GET", full)
    assert world.refusal("GET", full.replace(mine, others))[0] == 404


def test_gke_operation_is_found_in_its_own_location_alone(world):
    world.cluster()
    operation = world.ask("GET", f"{CONTAINER}/us-central2/operations")["operations"][0]["name"]
    assert world.ask("GET", f"{CONTAINER}/us-central2/operations/{operation}")
    assert world.refusal("GET", f"{CONTAINER}/us-east5/operations/{operation}")[0] == 404


def test_map_in_a_mask_is_replaced_not_joined(world, things):
    world.ask("PATCH", things["board"], {"labels": {"b": "3"}}, updateMask="labels")
    assert world.ask("GET", things["board"])["labels"] == {"b": "3"}


def test_mask_that_names_a_part_of_a_field_is_refused_rather_than_passed_over(world, things):
    status, _, text = world.refusal("PATCH", things["board"], {}, updateMask="encryption_spec.kms_key_name")
    assert (status, "encryptionSpec.kmsKeyName" in text) == (400, True)


def test_subnetwork_changed_with_an_old_fingerprint_is_refused(world, things):
    old = world.ask("GET", things["subnetwork"])["fingerprint"]
    changed = {"privateIpGoogleAccess": True, "fingerprint": old}
    world.ask("PATCH", things["subnetwork"], changed)
    world.pass_time(1000)
    assert world.refusal("PATCH", things["subnetwork"], changed)[0] == 412


def test_operations_that_ended_long_ago_are_gone_and_those_under_way_are_not(world):
    old = world.ask("POST", f"{COMPUTE}/global/networks", {"name": "old"})["name"]
    world.cloud.faults.set(Fault("slow", "insert .*/slow$", times=1, seconds=9000.0))
    slow = world.ask("POST", f"{COMPUTE}/global/networks", {"name": "slow"})["name"]
    world.pass_time(3500)
    recent = world.ask("POST", f"{COMPUTE}/global/networks", {"name": "recent"})["name"]
    assert world.ask("GET", f"{COMPUTE}/global/operations/{old}")["status"] == "DONE"
    world.pass_time(500)
    world.ask("POST", f"{COMPUTE}/global/networks", {"name": "new"})
    assert world.refusal("GET", f"{COMPUTE}/global/operations/{old}")[0] == 404
    assert world.ask("GET", f"{COMPUTE}/global/operations/{recent}")["status"] == "DONE"
    assert world.ask("GET", f"{COMPUTE}/global/operations/{slow}")["status"] == "RUNNING"
