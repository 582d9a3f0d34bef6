"""Fleets of several users in one project: each user's TPU VMs stay theirs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from support.fleet_users import users
from support.fleet_world import World
from tpukit.fleet.ownership import name_of
from tpukit.fleet.records import FLEET, SLOT, WORKERS, plan
from tpukit.google.tpu_vm import Request
from tpukit.jobs.spec.fleet import FleetSpec

ONE = "--zones us-central1-a --workers-per-zone"


@pytest.fixture
def world(tmp_path: Path):
    made = World(tmp_path)
    yield made
    made.close()


def test_default_fleets_of_two_users_in_one_zone_share_no_tpu_vm(world, tmp_path, monkeypatch):
    ada, bob = users(world, tmp_path, monkeypatch, "ada", "bob")
    ada.run(f"create {ONE} 2")
    before = {node.name: node.id for node in world.cloud.made.values()}
    assert sorted(before) == ["tpu-us-central1-a-0", "tpu-us-central1-a-1"]
    bob.run(f"create {ONE} 1")
    assert len(world.cloud.made) == 3
    bob.run("delete --zones us-central1-a --yes")
    assert {node.name: node.id for node in world.cloud.made.values()} == before


def ids(world: World) -> dict[str, str]:
    return {node.name: node.id for node in world.cloud.made.values()}


@pytest.mark.parametrize(
    "line",
    [
        "create --zones us-central1-a --workers-per-zone 1 --name night",
        "delete --zones us-central1-a --name night --yes",
        "recreate-preempted --zones us-central1-a --name night",
    ],
)
def test_fleet_of_another_owner_is_refused_with_the_owner_and_the_way_to_take_it_over(
    world, tmp_path, monkeypatch, line
):
    ada, bob = users(world, tmp_path, monkeypatch, "ada", "bob")
    ada.run(f"create {ONE} 2 --name night")
    before = ids(world)
    done = bob.type(line)
    assert done.exit_code == 1
    assert str(done.exception).splitlines()[0] == "Fleet `night` belongs to ada."
    assert "--name" in str(done.exception)
    assert "--adopt" in str(done.exception)
    assert (ids(world), bob.workers("night")) == (before, [])


def test_fleet_of_the_same_user_in_another_store_is_refused_until_it_is_adopted(world, tmp_path, monkeypatch):
    ada, elsewhere = users(world, tmp_path, monkeypatch, "ada", "ada2")
    ada.run(f"create {ONE} 2")
    before = ids(world)
    elsewhere.name, elsewhere.sender = "ada", "another store"
    done = elsewhere.type("delete --zones us-central1-a --yes")
    assert "is yours, but another store drives it" in str(done.exception)
    assert ids(world) == before
    elsewhere.run("delete --zones us-central1-a --yes --adopt")
    assert world.cloud.made == {}


def test_fleet_that_was_adopted_keeps_its_tpu_vms_and_recreates_those_that_are_lost(world, tmp_path, monkeypatch):
    ada, bob = users(world, tmp_path, monkeypatch, "ada", "bob")
    ada.run(f"create {ONE} 2 --name night")
    before = ids(world)
    assert "This command takes it over." in bob.run(f"create {ONE} 2 --name night --adopt")
    assert ids(world) == before
    world.cloud.preempt("tpu-us-central1-a-1")
    bob.run("recreate-preempted --name night")
    after = ids(world)
    assert (after["tpu-us-central1-a-0"], len(after)) == (before["tpu-us-central1-a-0"], 2)
    assert after["tpu-us-central1-a-1"] != before["tpu-us-central1-a-1"]


def test_tpu_vms_of_an_earlier_version_are_ours_only_where_our_store_has_records_of_them(world, tmp_path, monkeypatch):
    ada, bob = users(world, tmp_path, monkeypatch, "ada", "bob")
    for worker in plan("tpu", ["us-central1-a"], 2, "v3-8", 1.0):  # without owner and store, as that version wrote it
        ada.store.create(WORKERS, worker.key, worker)
        assert set(worker.labels) == {FLEET, SLOT}
        world.cloud.create(worker.zone, Request(worker.tpu, (worker.tpu,), "v3-8", "runtime", labels=worker.labels))
    before = ids(world)
    done = bob.type("delete --name tpu --zones us-central1-a --yes")
    assert "an earlier version of tpukit made them" in str(done.exception)
    ada.run(f"create {ONE} 2 --name tpu")
    assert ids(world) == before
    ada.run("delete --name tpu --yes")
    assert world.cloud.made == {}


def test_delete_asks_and_without_a_terminal_deletes_nothing(world, tmp_path, monkeypatch):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    ada.run(f"create {ONE} 2")
    before = ids(world)
    done = ada.type("delete")
    assert (done.exit_code, ids(world)) != (0, {})
    assert "pass --yes" in str(done.exception)
    done = ada.type("delete", said="n\n")
    assert "Delete 2 TPU VMs of fleet `ada` (us-central1-a-0, us-central1-a-1)?" in done.output
    assert (done.exit_code, ids(world)) == (1, before)
    assert ada.type("delete", said="y\n").exit_code == 0
    assert world.cloud.made == {}


def test_deploy_of_another_bucket_or_fewer_tpu_vms_asks_first(world, tmp_path, monkeypatch):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    data = tmp_path / "data.jsonl"
    data.write_text('{"n": 1}\n{"n": 2}\n')
    words = f"--dataset {data} --program json:loads --create-tpus"
    ada.run(f"deploy {ONE} 2 --gcs-bucket {tmp_path}/one {words}")
    before = ids(world)
    for line, why in [
        (f"deploy {ONE} 2 --gcs-bucket {tmp_path}/two {words}", f"to {tmp_path}/two/activations"),
        (f"deploy {ONE} 1 --gcs-bucket {tmp_path}/one {words}", "the TPU VMs of us-central1-a-1 are deleted"),
    ]:
        done = ada.type(line)
        assert why in str(done.exception), done.output
        assert "pass --yes" in str(done.exception)
        assert {one.work.output for one in ada.workers("ada")} == {f"{tmp_path}/one/activations"}
    assert ids(world) == before
    ada.run(f"deploy {ONE} 2 --gcs-bucket {tmp_path}/one {words}")  # the same command again
    ada.run(f"deploy {ONE} 1 --gcs-bucket {tmp_path}/one {words} --yes")
    assert sorted(ids(world)) == ["tpu-us-central1-a-0"]


def test_status_of_a_bucket_shows_the_numbers_of_that_bucket(world, tmp_path, monkeypatch):
    (ada,) = users(world, tmp_path, monkeypatch, "ada")
    data = tmp_path / "data.jsonl"
    data.write_text('{"n": 1}\n')
    ada.run(f"deploy {ONE} 1 --gcs-bucket {tmp_path}/one --dataset {data} --program json:loads --create-tpus")
    for bucket, samples in (("one", 10), ("two", 20)):
        folder = tmp_path / bucket / "activations" / "checkpoints"
        folder.mkdir(parents=True)
        shards = [{"worker": "tpu-us-central1-a-0", "samples": samples}]
        about = {"shards": shards, "total_shards": 1, "total_samples_processed": samples}
        (folder / "stream_000.json").write_text(json.dumps(about))
    for bucket, samples in (("one", 10), ("two", 20)):
        shown = json.loads(ada.run(f"status --json --gcs-bucket {tmp_path}/{bucket}").partition("\n}")[0] + "}")
        assert (shown["samples"], shown["workers"][0]["samples"]) == (samples, samples)


@pytest.mark.parametrize("user", ["ada", "Ada", "ada.lovelace", "7seas", "ada_b", "x" * 60, "名前", "a-", "root"])
def test_default_name_of_every_user_is_valid_and_their_own(user):
    name = name_of(user)
    assert FleetSpec.from_json({"zones": ["us-central1-a"], "name": name}).name == name
    assert [other for other in ("ada", "Ada", "ada-lovelace", "ada.lovelace", "a") if name_of(other) == name] in (
        [],
        [user],
    )


@pytest.mark.parametrize("whose", [{"owner": "bob", "store": "ada-store"}, {"owner": "ada", "store": "other"}, {}])
def test_driver_touches_no_tpu_vm_of_the_same_fleet_and_slot_with_another_owner_or_store(world, whose):
    """Two users who deploy a fleet of the same name at the same moment both pass the command's check."""
    (other,) = plan("tpu", ["us-central1-a"], 1, "v3-8", 1.0, **whose)
    world.cloud.create(other.zone, Request(other.tpu, (other.tpu,), "v3-8", "runtime", labels=other.labels))
    before = ids(world)
    world.left = 100_000
    world.want(["us-central1-a"], 1)
    for _ in range(12):
        world.clock.sleep(20.0)
        world.driver.round("tpu")
    assert before.items() <= ids(world).items()
    assert [world.cloud.made[name].labels["tpukit-fleet-owner"] for name in ids(world).keys() - before.keys()] == [
        "ada"
    ]
    assert len(world.hosts.programs) == 1
    world.delete()
    for _ in range(12):
        world.clock.sleep(20.0)
        world.driver.round("tpu")
    assert ids(world) == before
