"""A provisioner suspended before, or within, any of its calls while another one leads."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pytest

from support.provisioner_world import ZONES, ProvisionerWorld
from tpukit.core.errors import Denied, Transient
from tpukit.kernel.store import Holder
from tpukit.provisioner.driver import Driver
from tpukit.provisioner.leader import Leadership
from tpukit.provisioner.pool_cache import Intervals
from unit.provisioner.test_leader import OneLease

PAUSE = 120.0
CALLS = range(1, 9)


class Rivals(ProvisionerWorld):
    """Two replicas over one cluster, where the first is suspended once.

    It is suspended before its call number `at` or, with `sent`, between the check of its lease and the call. Meanwhile
    `happens` runs and the second replica leads.
    """

    def __init__(self, happens: Callable[[Rivals], None], *, sent: bool = False) -> None:
        super().__init__()
        self.lease, self.happens = OneLease(), happens
        self.at, self.calls, self.paused = 0, 0, False
        self.acting: Replica | None = None
        self.late: list[str] = []  # calls that the first sent after its suspension
        self.first, self.second = Replica(self, "first"), Replica(self, "second")
        if sent:
            self.gke.sent = self._before
        else:
            self.cluster.before = self.gke.before = self._before
            self.gke.sent = self._sent

    def pause_at(self, call: int) -> None:
        self.at, self.calls = call, 0

    def _before(self, what: str) -> None:
        if self.acting is not self.first or self.paused or what.startswith("list"):
            return
        self.calls += 1
        if self.calls == self.at:
            self.paused = True
            self.happens(self)
            self.acting = None
            self.live(PAUSE, self.second)
            self.acting = self.first

    def _sent(self, what: str) -> None:
        if self.acting is self.first and self.paused:
            self.late.append(what)

    def live(self, seconds: float, *replicas: Replica) -> None:
        due = self.clock.now() + seconds
        while self.clock.now() < due:
            self.clock.sleep(5.0)
            self.gke.tick()
            self.cluster.schedule()
            for one in replicas:
                one.act()


class Replica:
    def __init__(self, world: Rivals, name: str) -> None:
        self.world = world
        self.leader = Leadership(world.lease, "system", "lease", Holder(name), world.clock)
        self.driver = Driver(
            world.cluster, world.gke, world.cluster, self.leader, world.clock,
            zones=ZONES, intervals=Intervals(5.0, 5.0, 5.0), seed=1,
        )  # fmt: skip

    def act(self) -> None:
        before, self.world.acting = self.world.acting, self
        self.leader.renew()
        self.driver.round()
        self.world.acting = before


def ended(world: Rivals) -> None:
    world.cluster.finish("train")


def resumed(world: Rivals) -> None:
    world.cluster.suspend("train", on=False)


def nothing(world: Rivals) -> None: ...


@pytest.mark.parametrize("at", CALLS)
def test_provisioner_paused_before_a_call_while_another_ends_the_jobset_sends_nothing_more(at):
    world = Rivals(ended)
    world.pause_at(at)
    world.cluster.send("train", jobs=2)
    world.live(200, world.first)
    assert world.late == []
    world.first.leader.close()
    if world.paused:
        world.live(400, world.second)
        assert world.pools() == []


@pytest.mark.parametrize("at", [1, 2])
def test_provisioner_create_that_was_already_on_its_way_is_found_and_removed_by_the_next_leader(at):
    world = Rivals(ended, sent=True)
    world.pause_at(at)
    world.cluster.send("train", jobs=2)
    world.live(30, world.first)
    assert world.paused
    assert world.pools(), "the create that was on its way"
    world.live(400, world.second)
    assert world.pools() == []


@pytest.mark.parametrize("at", CALLS)
def test_provisioner_paused_while_another_leads_keeps_the_pools_of_a_jobset_that_runs(at):
    world = Rivals(nothing)
    world.pause_at(at)
    world.cluster.send("train", jobs=2)
    world.live(300, world.first, world.second)
    assert world.cluster.running("train") == 2
    assert set(world.gke.made.values()) == {1}
    assert world.late == []


@pytest.mark.parametrize("at", CALLS)
def test_provisioner_paused_before_a_removal_leaves_a_pool_that_its_jobset_uses_again(at):
    world = Rivals(resumed)
    world.cluster.send("train")
    world.live(200, world.first)
    (name,) = world.pools()
    world.cluster.suspend("train")
    world.pause_at(at)
    world.live(200, world.first)
    assert world.late == []
    if world.paused:
        world.live(200, world.second)
        assert len(world.pools()) == 1
        assert world.cluster.running("train") == 1
    assert world.gke.made[name] <= 2


def test_leader_that_cannot_list_node_pools_lets_another_replica_lead():
    world = Rivals(nothing)

    def refuse(what: str) -> None:
        if world.acting is world.first:
            raise Denied(f"{what}: permission denied")

    world.gke.before = refuse
    world.first.leader.renew()
    world.cluster.send("train")
    for _ in range(60):
        with suppress(Denied):
            world.live(5.0, world.first)
        world.acting = None
        world.live(5.0, world.second)
    assert world.second.leader.leading()
    assert world.cluster.running("train") == 1


def test_leader_that_may_list_but_not_create_node_pools_lets_another_replica_lead_once():
    world = Rivals(nothing)

    def refuse(what: str) -> None:
        if world.acting is world.first and what.startswith("create"):
            raise Denied(f"{what}: permission denied")

    world.gke.before = refuse
    world.first.leader.renew()
    world.cluster.send("train")
    world.live(300.0, world.first, world.second)
    assert world.second.leader.leading()
    assert world.cluster.running("train") == 1


def test_leader_that_may_not_create_node_pools_and_is_alone_leads_on_after_it_yielded_once():
    world = Rivals(nothing)
    led: list[bool] = []

    def refuse(what: str) -> None:
        if what.startswith("create"):
            raise Denied(f"{what}: permission denied")

    world.gke.before = refuse
    world.first.leader.renew()
    world.cluster.send("train")
    for _ in range(300):
        world.live(5.0, world.first)
        led.append(world.first.leader.leading())
    assert led.count(False) in range(1, 20), "it yields once, for a minute"
    assert led[-1]


def test_replica_that_leads_again_measures_anew_for_how_long_a_pool_has_had_no_pod():
    world = Rivals(nothing)
    observer = world.first.driver._observer
    observer._idle = {"train-0": 1.0}
    world.first.leader.resign()
    with suppress(Transient):
        world.first.driver.round()
    assert observer._idle == {}


def test_leader_that_cannot_list_node_pools_for_a_moment_leads_on():
    world = Rivals(nothing)
    world.first.leader.renew()
    world.gke.trouble = lambda: "refused"
    for _ in range(6):
        with suppress(Transient):
            world.live(5.0, world.first)
    world.gke.trouble = lambda: ""
    world.live(60.0, world.first)
    world.gke.trouble = lambda: "refused"
    for _ in range(6):
        with suppress(Transient):
            world.live(5.0, world.first)
    assert world.first.leader.leading()
