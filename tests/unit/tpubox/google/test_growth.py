"""The cost of a request does not grow with the data: documents read are counted for n and for 2n."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.compute import stock_and_quota
from tpubox.google.storage import object_versions
from tpubox.google.wire.state import State

NODES = f"tpu/v2/projects/{PROJECT}/locations/us-central2-b/nodes"
VM = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, seconds={"": 5.0}) as made:
        yield made


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Record the kinds of all documents that are read."""
    found: list[str] = []
    begin, get = State._begin, State.get

    def counted(state: State, kind: str, prefix: str) -> Iterator[tuple[str, str]]:
        for row in begin(state, kind, prefix):
            found.append(kind)
            yield row

    def got(state: State, kind: str, name: str) -> Any:
        found.append(kind)
        return get(state, kind, name)

    monkeypatch.setattr(State, "_begin", counted)
    monkeypatch.setattr(State, "get", got)
    return found


@pytest.mark.parametrize("pause", [10.0, 0.0], ids=["one by one", "all at once"])
def test_twice_the_tpu_vms_are_made_with_twice_the_documents_read(world, reads, pause):
    stock_and_quota.limit_stock(world.cloud, "us-central2-b", "v4", 1000)
    stock_and_quota.limit_quota(world.cloud, "us-central2", "v4", 1000)

    def make(first: int, count: int) -> int:
        reads.clear()
        for number in range(first, first + count):
            world.ask("POST", NODES, VM, nodeId=f"vm-{number}")
            world.pass_time(pause)
        world.pass_time(10)
        return len(reads)

    few = make(0, 20)
    assert make(20, 40) <= 2.2 * few
    assert {one["state"] for one in world.ask("GET", NODES)["nodes"]} == {"READY"}


def test_tpu_vms_that_come_after_others_went_have_addresses_of_their_own(world):
    def addresses() -> list[str]:
        return [one["networkEndpoints"][0]["ipAddress"] for one in world.ask("GET", NODES)["nodes"]]

    for number in range(4):
        world.ask("POST", NODES, VM, nodeId=f"vm-{number}")
    world.pass_time(10)
    first = addresses()
    for number in (2, 1):
        world.ask("DELETE", f"{NODES}/vm-{number}")
    world.pass_time(10)
    for number in (5, 6, 7):
        world.ask("POST", NODES, VM, nodeId=f"vm-{number}")
    assert len(set(addresses())) == 5
    assert set(first) < set(addresses()), "what was given back is given again"


def test_chips_held_are_added_up_by_what_they_are(world):
    for number, spot in enumerate((False, False, True)):
        world.ask("POST", NODES, {**VM, "schedulingConfig": {"spot": spot}}, nodeId=f"vm-{number}")
    world.cloud.state.put("note", "of a caller", {"value": float("nan")})
    held = [(one["spot"], one["up"], one["chips"]) for one in world.cloud.state.held("vm")]
    assert sorted(held) == [(False, False, 8), (True, False, 4)]


def test_twice_the_objects_of_a_bucket_are_listed_with_twice_the_documents_read(world, reads):
    world.ask("POST", "storage/v1/b", {"name": "many-objects", "location": "US"}, project=PROJECT)
    bucket = world.cloud.state.get("bucket", "many-objects")

    def listed(first: int, count: int, **query: str) -> int:
        for number in range(first, first + count):
            object_versions.store(world.cloud, bucket, {"name": f"{number % 3}/{number:04d}"}, b"x")
        reads.clear()
        token, names = "", []
        while token is not None:
            page = world.ask("GET", "storage/v1/b/many-objects/o", maxResults="10", pageToken=token, **query)
            names += [one["name"] for one in page["items"]]
            token = page.get("nextPageToken")
        assert names == sorted(names)
        assert len(names) == first + count
        return len(reads)

    few = listed(0, 60)
    assert listed(60, 60) <= 2.2 * few


def test_objects_in_folders_are_not_read_where_only_the_folders_are_listed(world, reads):
    world.ask("POST", "storage/v1/b", {"name": "many-objects", "location": "US"}, project=PROJECT)
    bucket = world.cloud.state.get("bucket", "many-objects")
    for number in range(60):
        object_versions.store(world.cloud, bucket, {"name": f"{number % 3}/{number:04d}"}, b"x")
    reads.clear()
    page = world.ask("GET", "storage/v1/b/many-objects/o", delimiter="/")
    assert page["prefixes"] == ["0/", "1/", "2/"]
    assert reads.count("object") == 3


def test_twice_the_pools_are_made_with_twice_the_documents_read(world, reads):
    pools = world.cluster()

    def make(first: int, count: int) -> int:
        reads.clear()
        for number in range(first, first + count):
            world.ask("POST", pools, pool(f"tpu-{number}"))
            world.pass_time(10)
        return len(reads)

    few = make(0, 10)
    assert make(10, 20) <= 2.2 * few


def test_twice_the_operations_under_way_are_looked_at_with_twice_the_documents_read(tmp_path, reads):
    with World(tmp_path, seconds={"": 100_000.0, "SET_NODE_POOL_MANAGEMENT": 0.0}) as world:
        world.cloud.settings.seconds[""] = 0.0
        pools = world.cluster()
        world.ask("POST", pools, pool())
        world.cloud.settings.seconds[""] = 100_000.0

        def change(first: int, count: int) -> int:
            reads.clear()
            for number in range(first, first + count):
                world.ask("POST", NODES, VM, nodeId=f"vm-{number}")
                world.ask(
                    "POST", f"{pools}/tpu-0:setManagement", {"management": {"autoRepair": True, "autoUpgrade": True}}
                )
            return len(reads)

        few = change(0, 20)
        assert change(20, 40) <= 2.2 * few


def test_twice_the_groups_of_machines_are_looked_at_one_by_one_with_twice_the_documents_read(world, reads):
    pools = world.cluster()
    managers = f"compute/v1/projects/{PROJECT}/zones/us-central2-b/instanceGroupManagers"

    def look(first: int, count: int) -> int:
        for number in range(first, first + count):
            world.ask("POST", pools, pool(f"tpu-{number}"))
            world.pass_time(10)
        names = [one["name"] for one in world.ask("GET", managers)["items"]]
        reads.clear()
        for name in names:
            world.ask("GET", f"{managers}/{name}")
            world.ask("POST", f"{managers}/{name}/listManagedInstances")
        return len(reads)

    few = look(0, 10)
    assert look(10, 10) <= 2.2 * few
