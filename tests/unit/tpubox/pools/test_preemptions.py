"""Preempted node pools: the owner of their chips, their return, and Compute Engine's messages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.compute import stock_and_quota
from tpubox.google.wire.settings import Hooks, Pool
from tpubox.kubelet.nodes import Presence, Record
from tpubox.pools import pool_adapter
from tpubox.pools.preemptions import Preemptions
from tpukit.core.errors import Transient

ZONE = f"compute/v1/projects/{PROJECT}/zones/us-central2-b"


class Google:
    """A zone with chips for one slice of 16, and a node agent that only records calls."""

    def __init__(self, folder: Path) -> None:
        self.records: dict[str, Record] = {}
        self.late = 0  # calls that the agent does not answer
        self.world = World(folder, Hooks(on_pool_created=self._came, on_pool_deleted=self._went))
        stock_and_quota.limit_stock(self.world.cloud, "us-central2-b", "v4", 16)
        self.pools = self.world.cluster()
        self.watch = Preemptions(self.world.cloud, lambda: list(self.records.values()), self._back)

    def _came(self, made: Pool) -> None:
        if made.nodes:
            self.records[made.name] = Record(pool_adapter.of_google(made))

    def _went(self, made: Pool) -> None:
        del self.records[made.name]

    def _back(self, key: str) -> None:
        if self.late:
            self.late -= 1
            raise Transient("no answer")
        (record,) = (one for one in self.records.values() if one.pool.key == key)
        record.presence, record.back_at = Presence.HERE, None

    def add(self, name: str) -> str:
        """Create a pool, and return its state after all delays."""
        self.world.ask("POST", self.pools, pool(name))
        self.world.pass_time(1000)
        return str(self.world.ask("GET", f"{self.pools}/{name}")["status"])

    def preempt(self, name: str, back: float | None = 30.0) -> None:
        record = self.records[name]
        record.presence, record.deadline = Presence.AWAY, self.world.clock.now()
        record.back_at = None if back is None else self.world.clock.now() + back

    def pass_time(self, seconds: float) -> None:
        self.world.pass_time(seconds)
        with suppress(Transient):
            self.watch.tick()

    def preempted(self) -> list[str]:
        listed = self.world.ask("GET", f"{ZONE}/operations", filter='operationType="compute.instances.preempted"')
        return [one["targetLink"].rpartition("/")[2] for one in listed.get("items", ())]


@pytest.fixture
def google(tmp_path: Path) -> Iterator[Google]:
    made = Google(tmp_path)
    with made.world:
        yield made


def test_chips_of_a_preempted_pool_go_to_who_asks_next_and_it_returns_when_they_are_given_back(google: Google):
    assert google.add("first") == "RUNNING"
    google.preempt("first")
    google.pass_time(1)
    assert google.add("second") == "RUNNING", "the chips are free"
    google.pass_time(1000)
    assert google.records["first"].presence is Presence.AWAY, "there is no stock for it"
    google.world.ask("DELETE", f"{google.pools}/second")
    google.world.pass_time(1000)
    google.pass_time(1)
    assert google.records["first"].presence is Presence.HERE
    assert google.add("third") == "ERROR", "the chips are taken again"


def test_preempted_pool_returns_no_sooner_than_it_was_told_and_holds_its_chips_from_then_on(google: Google):
    google.add("first")
    google.preempt("first", back=30)
    google.pass_time(29)
    assert google.records["first"].presence is Presence.AWAY
    google.pass_time(1)
    assert google.records["first"].presence is Presence.HERE
    assert google.add("second") == "ERROR"


def test_agent_that_does_not_answer_when_a_pool_may_return_is_told_again_and_nobody_took_the_chips(google: Google):
    google.add("first")
    google.preempt("first")
    google.pass_time(1)
    google.late = 2
    google.pass_time(60)
    assert google.add("second") == "ERROR"
    google.pass_time(1)
    google.pass_time(1)
    assert google.records["first"].presence is Presence.HERE


def test_pool_that_somebody_restored_has_its_chips_again(google: Google):
    google.add("first")
    google.preempt("first", back=None)
    google.pass_time(10_000)
    google.records["first"].presence = Presence.HERE
    google.pass_time(1)
    assert google.add("second") == "ERROR"


def test_each_preempted_machine_is_once_in_the_operations_of_its_zone(google: Google):
    google.add("first")
    assert google.preempted() == []
    google.preempt("first")
    google.pass_time(1)
    google.pass_time(1)
    machines = sorted(google.records["first"].pool.nodes)
    assert sorted(google.preempted()) == machines
    google.pass_time(60)
    google.preempt("first")
    google.pass_time(1)
    assert sorted(google.preempted()) == sorted([*machines, *machines]), "it was preempted twice"
    (one, *_) = google.world.ask("GET", f"{ZONE}/operations")["items"]
    assert one["zone"].endswith("/zones/us-central2-b")
    assert google.world.ask("GET", f"{ZONE}/operations/{one['name']}") == one


def test_pool_that_was_restored_and_preempted_again_between_two_looks_was_preempted_twice(google: Google):
    google.add("first")
    google.preempt("first", back=None)
    google.pass_time(1)
    google.records["first"].presence = Presence.HERE
    google.world.pass_time(0.5)
    google.preempt("first", back=1)
    google.pass_time(0.5)
    assert len(google.preempted()) == 8
    google.pass_time(1)
    assert google.records["first"].presence is Presence.HERE


def test_preempted_pool_that_is_deleted_meanwhile_is_not_brought_back(google: Google):
    google.add("first")
    google.preempt("first")
    google.pass_time(1)
    google.world.ask("DELETE", f"{google.pools}/first")
    google.world.pass_time(1000)
    google.pass_time(1)
    assert google.records == {}
    assert google.add("second") == "RUNNING"
