"""Changes based on an outdated read are refused, as in each of Google's APIs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.google_world import PROJECT, World, pool

BOARDS = f"vertex_ai/v1/projects/{PROJECT}/locations/us-central1/tensorboards"
DATABASES = f"firestore/v1/projects/{PROJECT}/databases"
ACCOUNTS = f"iam/v1/projects/{PROJECT}/serviceAccounts"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def test_node_pool_is_changed_with_its_current_etag_alone(world: World):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    world.pass_time(1000)
    path = f"{pools}/tpu-0"
    first = world.ask("GET", path)["etag"]
    world.ask("PUT", path, {"etag": first, "labels": {"labels": {"a": "b"}}})
    world.pass_time(1000)
    second = world.ask("GET", path)["etag"]
    assert second != first
    assert world.refusal("PUT", path, {"etag": first, "labels": {"labels": {}}})[:2] == (409, "ABORTED")
    assert world.ask("GET", path)["config"]["labels"] == {"a": "b"}
    cluster = world.ask("GET", pools.removesuffix("/nodePools"))
    assert [one["etag"] for one in cluster["nodePools"]] == [second]


def test_node_pool_that_was_made_again_has_another_etag(world: World):
    pools = world.cluster()
    seen = set()
    for _ in range(2):
        world.ask("POST", pools, pool())
        world.pass_time(1000)
        seen.add(world.ask("GET", f"{pools}/tpu-0")["etag"])
        world.ask("DELETE", f"{pools}/tpu-0")
        world.pass_time(1000)
    assert len(seen) == 2


def test_cluster_is_changed_with_its_current_etag_alone(world: World):
    path = world.cluster().removesuffix("/nodePools")
    first = world.ask("GET", path)["etag"]
    change = {"desiredShieldedNodes": {"enabled": False}}
    world.ask("PUT", path, {"update": {**change, "etag": first}})
    world.pass_time(1000)
    assert world.ask("GET", path)["etag"] != first
    assert world.refusal("PUT", path, {"update": {**change, "etag": first}})[:2] == (409, "ABORTED")


def test_database_is_changed_and_deleted_with_its_current_etag_alone(world: World):
    world.ask("POST", DATABASES, {"locationId": "nam5", "type": "FIRESTORE_NATIVE"}, databaseId="(default)")
    world.pass_time(1000)
    path = f"{DATABASES}/(default)"
    first = world.ask("GET", path)["etag"]
    change = {"concurrencyMode": "OPTIMISTIC", "etag": first}
    world.ask("PATCH", path, change, updateMask="concurrencyMode")
    world.pass_time(1000)
    assert world.refusal("PATCH", path, change, updateMask="concurrencyMode")[:2] == (400, "FAILED_PRECONDITION")
    assert world.refusal("DELETE", path, etag=first)[:2] == (400, "FAILED_PRECONDITION")
    [now] = world.ask("GET", DATABASES)["databases"]
    world.ask("DELETE", path, etag=now["etag"])


def test_tensorboard_and_what_is_in_it_are_changed_with_their_current_etags_alone(world: World):
    world.ask("POST", BOARDS, {"displayName": "board"})
    world.pass_time(1000)
    [board] = world.ask("GET", BOARDS)["tensorboards"]
    path = f"vertex_ai/v1/{board['name']}"
    experiment = world.ask("POST", f"{path}/experiments", {}, tensorboardExperimentId="one")
    for thing in (board, experiment):
        where = f"vertex_ai/v1/{thing['name']}"
        change = {"description": "new", "etag": thing["etag"]}
        world.ask("PATCH", where, change, updateMask="description")
        world.pass_time(1000)
        assert world.refusal("PATCH", where, change, updateMask="description")[:2] == (409, "ABORTED")
        world.ask("PATCH", where, {"description": "blind"}, updateMask="description")
        world.pass_time(1000)
        assert world.ask("GET", where)["description"] == "blind"


def test_etag_of_a_bucket_counts_its_changes_and_is_a_condition_of_reading_it(world: World):
    world.ask("POST", "storage/v1/b", {"name": "bucket"}, project=PROJECT)
    assert world.ask("GET", "storage/v1/b/bucket")["etag"] == "CAE="
    changed = world.ask("PATCH", "storage/v1/b/bucket", {"labels": {"a": "b"}, "etag": "sent"})
    assert changed["etag"] == "CAI="
    assert world.send("GET", "storage/v1/b/bucket", headers={"if-match": "CAE="})[0] == 412
    assert world.send("GET", "storage/v1/b/bucket", headers={"if-match": '"CAI="'})[0] == 200
    assert world.send("GET", "storage/v1/b/bucket", headers={"if-none-match": "CAI="})[0] == 304


def test_etag_of_an_object_changes_with_what_is_said_of_it(world: World):
    world.ask("POST", "storage/v1/b", {"name": "bucket"}, project=PROJECT)
    world.ask("POST", "upload/storage/v1/b/bucket/o", b"content", uploadType="media", name="thing")
    first = world.ask("GET", "storage/v1/b/bucket/o/thing")["etag"]
    assert world.ask("PATCH", "storage/v1/b/bucket/o/thing", {"metadata": {"a": "b"}})["etag"] != first
    assert world.send("GET", "storage/v1/b/bucket/o/thing", headers={"if-match": first})[0] == 412
