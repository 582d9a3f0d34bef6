"""Two drivers of one fleet: one is suspended before any of its calls while the other continues."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from support.fleet_world import ZONES, World
from tpukit.core import fence
from tpukit.core.errors import LeaseLost
from tpukit.fleet.act import Acting
from tpukit.fleet.driver import Driver
from tpukit.fleet.reach import Reach
from tpukit.fleet.seen import Create, Delete, Launch, Target
from tpukit.google.tpu_vm import Request
from tpukit.kernel.store import Holder


class Suspending:
    """An object that runs `meanwhile` before its nth call."""

    def __init__(self, inner: Any, calls: Countdown) -> None:
        self._inner, self._calls = inner, calls

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._inner, name)
        if not callable(value):
            return value

        def call(*args: Any, **options: Any) -> Any:
            self._calls.count(name)
            return value(*args, **options)

        return call


class Countdown:
    def __init__(self, meanwhile: Callable[[], None]) -> None:
        self._meanwhile, self.left, self.struck = meanwhile, -1, ""

    def count(self, name: str) -> None:
        if self.left == 0:
            self.left, self.struck = -1, name
            self._meanwhile()
        elif self.left > 0:
            self.left -= 1


def drivers(world: World, meanwhile: Callable[[], None]) -> tuple[Driver, Driver, Countdown]:
    """Return the suspended driver, the other one on another machine with the same store, and the countdown."""
    calls = Countdown(meanwhile)
    cloud, hosts = Suspending(world.cloud, calls), Suspending(world.hosts, calls)
    reach = Reach(cloud, hosts, "ada", True, "store")
    acting = Acting(cloud, reach, lambda _: "runtime", lambda _: b"archive")
    made = (Holder("one/1", "machine one", 1), acting), (Holder("two/1", "machine two", 1), world.acting())
    first, second = (Driver(world.store, each, world.progress, world.clock, holder) for holder, each in made)
    return first, second, calls


def turn(world: World, driver: Driver) -> None:
    world.clock.sleep(20.0)
    for program in world.hosts.running().values():
        program.moved = world.clock.now()
    driver.round("tpu")


@pytest.mark.parametrize("when", range(40))
def test_driver_suspended_before_any_call_while_another_deletes_the_fleet_leaves_nothing(tmp_path: Path, when: int):
    world = World(tmp_path, shards=100_000)

    def meanwhile() -> None:
        world.clock.suspend(120.0)
        world.delete()
        for _ in range(12):
            turn(world, second)

    first, second, calls = drivers(world, meanwhile)
    world.want(per_zone=1)
    calls.left = when
    for _ in range(16):
        turn(world, first)
    assert calls.struck
    for _ in range(6):
        turn(world, first)
        turn(world, second)
    assert (world.cloud.made, world.cloud.requests, world.workers()) == ({}, {}, []), calls.struck
    first.close()
    second.close()
    world.close()


@pytest.mark.parametrize("when", range(30))
def test_driver_suspended_before_any_call_while_another_recreates_a_tpu_vm_does_not_touch_the_new_one(
    tmp_path: Path, when: int
):
    world = World(tmp_path, shards=100_000)
    made: dict[str, str] = {}

    def meanwhile() -> None:
        world.clock.suspend(120.0)
        for _ in range(30):
            turn(world, second)
        assert len(world.hosts.running()) == 2
        made.update({node.name: node.id for node in world.cloud.made.values()})

    first, second, calls = drivers(world, meanwhile)
    world.want(per_zone=1)
    for _ in range(12):
        turn(world, first)
    world.cloud.preempt("tpu-us-central1-a-0")
    calls.left = when
    starts = None
    for _ in range(40):
        turn(world, first)
        if calls.struck and starts is None:
            starts = world.hosts.starts
    assert calls.struck
    assert {node.name: node.id for node in world.cloud.made.values()} == made, calls.struck
    assert world.hosts.starts == starts
    first.close()
    second.close()
    world.close()


@pytest.fixture
def world(tmp_path: Path):
    made = World(tmp_path, shards=100_000)
    yield made
    made.close()


def slots(world: World) -> list[str]:
    """List every request, and every TPU VM without a request."""
    requests = [f"{world.cloud.where[name]} {name}" for name in world.cloud.requests]
    return sorted([*requests, *(f"{world.cloud.where[one.name]} {one.name}" for one in unasked(world))])


def unasked(world: World) -> list[Any]:
    return [one for one in world.cloud.made.values() if one.queued not in world.cloud.requests]


@pytest.mark.parametrize("how", ["queued", "created"])
@pytest.mark.parametrize("zone", ZONES)
def test_tpu_vm_that_a_fenced_driver_still_created_in_another_zone_is_deleted_in_one_round(world, how, zone):
    world.want([*ZONES], 1)
    world.until_working()
    before = slots(world)
    worker = next(one for one in world.workers() if one.zone != zone)
    late = replace(worker, zone=zone)
    request = Request(late.tpu, (late.tpu,), "v3-8", "runtime", labels=late.labels)
    (world.cloud.request if how == "queued" else world.cloud.create)(zone, request)
    world.clock.sleep(20.0)
    world.driver.round("tpu")
    world.cloud.nodes(zone)  # TPU VMs being deleted are absent from the next list
    assert slots(world) == before


def test_tpu_vm_left_in_a_zone_that_the_plan_has_no_longer_is_found_and_deleted(world):
    world.want([*ZONES], 1)
    world.until_working()
    worker = next(one for one in world.workers() if one.zones[0] == ZONES[0])
    world.want([ZONES[0]], 1)
    for _ in range(8):
        world.round()
    late = replace(worker, zone=ZONES[1])
    world.cloud.create(ZONES[1], Request(late.tpu, (late.tpu,), "v3-8", "runtime", labels=late.labels))
    world.driver.kernel.round([worker.key])  # never requested there, so the next deployment finds it
    world.want([*ZONES], 1)
    for _ in range(3):
        world.clock.sleep(20.0)
        world.driver.round("tpu")
    assert late.tpu not in world.cloud.made


def test_fleet_is_not_gone_while_a_request_of_a_moment_ago_may_still_appear(world):
    """The answer to the request was lost, and the request is in no list yet."""
    world.want([ZONES[0]], 1)
    world.clock.sleep(20.0)
    world.driver.round("tpu")
    hidden = dict(world.cloud.requests)
    assert hidden
    world.cloud.requests.clear()
    world.delete()
    world.driver.round("tpu")
    assert [one.state for one in world.workers()] == ["active"]
    world.cloud.requests |= hidden
    world.rest()
    assert (world.cloud.made, world.cloud.requests, world.workers()) == ({}, {}, [])


def test_acts_behind_a_lost_lease_send_nothing(world):
    world.want([ZONES[0]], 1)
    world.until_working()
    (worker,), (node,) = world.workers(), world.cloud.made.values()
    before, starts = slots(world), world.hosts.starts

    def lost() -> float:
        raise LeaseLost("another driver owns it")

    request = world.cloud.requests[node.name][1]
    acts = [
        (replace(worker, zone=ZONES[1]), Create()),
        (worker, Delete((Target(ZONES[0], node.name, node.id, request.id),))),
    ]
    for one, act in acts:
        with fence.held(lost), pytest.raises(LeaseLost):
            world.acting().act(one, act)
    assert (slots(world), world.hosts.starts) == (before, starts)


def test_delete_and_launch_that_were_decided_for_an_earlier_tpu_vm_leave_its_successor_alone(world):
    world.want([ZONES[0]], 1)
    world.until_working()
    (worker,), (node,) = world.workers(), world.cloud.made.values()
    starts = world.hosts.starts
    for target in (
        Target(ZONES[0], node.name, "an earlier one", world.cloud.requests[node.name][1].id),
        Target(ZONES[0], node.name, node.id, "an earlier request"),
        Target(ZONES[0], node.name, "", world.cloud.requests[node.name][1].id),  # there was no TPU VM then
    ):
        world.acting().act(worker, Delete((target,)))
    with pytest.raises(Exception, match="is being recreated"):
        world.acting().act(replace(worker, attempt=worker.attempt + 1), Launch("an earlier one"))
    for _ in range(3):
        world.round()
    assert ([one.id for one in world.cloud.made.values()], world.hosts.starts) == ([node.id], starts)
