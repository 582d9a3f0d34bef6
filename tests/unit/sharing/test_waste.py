"""What is wasted at Google: found with its price, and deleted only if it is still the same and still without use."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tpukit import catalogue
from tpukit.catalogue import prices
from tpukit.cli import clean, context, vms
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied
from tpukit.google.tpu_vm import Node, Queued
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.sharing import waste
from tpukit.sharing.inventory import VMS, Vm

NOW = 1_800_000_000.0
DAY = 86_400.0
ZONE = "us-west4-a"
OWNED = ("tpukit-store", "tpukit-fleet")


def node(name: str, state: str = "READY", **more: Any) -> Node:
    return Node(name, f"id-{name}", state, accelerator="v5litepod-8", **more)


def vm(name: str, **more: Any) -> Vm:
    return Vm(name, ZONE, "v5litepod-8", NOW - 9 * DAY, **more)


def found(
    nodes: list[Node],
    vms: list[Vm] | None = None,
    queued: list[Queued] | None = None,
    free: float | None = NOW - 2 * DAY,
) -> list[waste.Waste]:
    return waste.find(vms or [], {ZONE: nodes}, {ZONE: queued or []}, lambda _: free, OWNED, NOW, DAY)


def test_shared_tpu_vm_without_a_job_is_waste_after_a_while_and_never_while_its_use_is_unknown():
    (one,) = found([node("a")], [vm("a")])
    assert (one.since, one.command, one.ends) == (NOW - 2 * DAY, "tpu vm delete a", True)
    assert one.usd == prices.price(catalogue.find("v5litepod-8"), ZONE).usd > 0
    assert found([node("a")], [vm("a")], free=NOW - 0.5 * DAY) == []
    assert found([node("a")], [vm("a")], free=None) == []  # in use, or not known
    assert found([node("a", "CREATING")], [vm("a")]) == []


def test_tpu_vms_of_jobs_and_fleets_are_left_to_their_drivers():
    assert found([node("a", labels={"tpukit-store": "x"}), node("b", labels={"tpukit-fleet": "y"})]) == []


def test_tpu_vm_of_another_program_is_listed_and_not_deleted():
    (one,) = found([node("a")])
    assert not one.ends
    assert one.command == f"gcloud compute tpus tpu-vm delete a --zone={ZONE}"


def test_remains_of_lost_capacity_cost_nothing_and_can_go():
    queued = [
        Queued("q", "FAILED", error="no capacity", nodes=("gone",), id="7"),
        Queued("has-a-node", "SUSPENDED", nodes=("a",)),
        Queued("waits", "WAITING_FOR_RESOURCES", nodes=("b",)),
        Queued("of-a-job", "FAILED", nodes=("c",), labels={"tpukit-store": "x"}),
    ]
    names = [(one.what, one.name, one.usd, one.id) for one in found([node("a", "PREEMPTED")], [vm("a")], queued)]
    assert names == [("TPU VM", "a", 0.0, "id-a"), ("queued resource", "q", 0.0, "7")]


class Cloud:
    def __init__(self, *nodes: Node) -> None:
        self.there = list(nodes)
        self.requests: list[Queued] = []
        self.deleted: list[tuple[str, str]] = []

    def nodes(self, zone: str) -> list[Node]:
        return self.there if zone == ZONE else []

    def queued(self, zone: str) -> list[Queued]:
        return self.requests if zone == ZONE else []

    def delete_node(self, zone: str, name: str, expected: str) -> None:
        if name == "denied":
            raise Denied("you may not delete it")
        self.deleted.append((name, expected))

    def delete_queued(self, zone: str, name: str, expected: str) -> None:
        self.deleted.append((f"queued {name}", expected))


@pytest.fixture
def cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Cloud]:
    store = SqliteStore(tmp_path / "store.sqlite")
    for name, fields in (("idle", {}), ("queued", {}), ("held", {"job": "runs"}), ("denied", {})):
        store.create(VMS, name, vm(name, **fields))
    store.create(JOBS, "runs", Job("runs", "tpu-vm", "t", "me", NOW - DAY, {}, state=State.RUNNING))
    made = Cloud(node("idle"), node("queued", queued="q"), node("held"), node("foreign"))
    made.requests = [Queued("q", "ACTIVE", nodes=("queued",), id="q-1"), Queued("old", "FAILED", id="old-1")]
    monkeypatch.setattr(context, "store", lambda: store)
    monkeypatch.setattr(context, "CLOCK", ManualClock(NOW))
    monkeypatch.setattr(vms, "cloud", lambda: made)
    yield made
    store.close()


def test_command_lists_with_prices_and_deletes_only_what_is_ours_and_idle(cloud):
    run = CliRunner().invoke
    shown = run(clean.command, ["--cloud", "--dry-run"])
    assert shown.exit_code == 0, shown.output
    assert "tpu vm delete idle" in shown.stdout
    assert "it has no job for 9d" in shown.stdout
    assert "held" not in shown.stdout
    assert "4 objects" in shown.stderr
    listed = json.loads(run(clean.command, ["--cloud", "--json"]).stdout)["waste"]
    assert {one["name"]: one["deletable"] for one in listed} == {
        **{"idle": True, "queued": True, "old": True},
        "foreign": False,
    }
    assert cloud.deleted == []
    done = run(clean.command, ["--cloud", "--yes"])
    assert done.exit_code == 0, done.output
    assert sorted(cloud.deleted) == [("idle", "id-idle"), ("queued old", "old-1"), ("queued q", "q-1")]


def test_tpu_vm_that_was_recreated_or_taken_since_the_question_is_not_deleted(cloud, monkeypatch):
    from tpukit.cli import clean_cloud

    before = [one for one in clean_cloud.listed(DAY) if one.name == "idle"]
    cloud.there = [replace(cloud.there[0], id="another"), *cloud.there[1:]]
    assert clean_cloud._delete(before, DAY)
    assert cloud.deleted == []


def test_refusal_is_reported_and_the_others_are_deleted(cloud):
    cloud.there.append(node("denied"))
    done = CliRunner().invoke(clean.command, ["--cloud", "--yes"])
    assert (done.exit_code, "denied could not be deleted" in done.stderr) == (1, True)
    assert ("idle", "id-idle") in cloud.deleted
