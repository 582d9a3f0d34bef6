"""A fleet of TPU VMs: lost VMs are recreated, VMs of others are not touched, and the fleet settles."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from support.fleet_world import ME, WORK, ZONES, World
from tpukit.cli import context, fleet_driving, fleet_owner, vms
from tpukit.cli.fleet import _are_launched, command
from tpukit.cli.fleet_screen import LOST
from tpukit.core.errors import Invalid, NoCapacity, Transient
from tpukit.fleet import driver, records
from tpukit.fleet.decide import MOST_FAILURES, Create, Delete, Seen, decide, refused
from tpukit.fleet.listing import located
from tpukit.fleet.reach import Reach
from tpukit.fleet.status import status
from tpukit.google.tpu_vm import Request


@pytest.fixture
def world(tmp_path: Path):
    made = World(tmp_path)
    yield made
    made.close()


def names(world: World) -> list[str]:
    return sorted(world.cloud.made)


def test_sixteen_workers_in_four_zones_are_named_by_zone_and_number(world):
    zones = [f"us-central1-{letter}" for letter in "abcf"]
    world.want(zones, 4, None)
    for _ in range(8):
        world.round()
    assert names(world) == [f"tpu-{zone}-{number}" for zone in zones for number in range(4)]


def test_names_are_those_of_zone_and_worker(world):
    world.want(["us-central1-a", "europe-west4-a"], 2, None)
    for _ in range(8):
        world.round()
    assert names(world) == [
        *("tpu-europe-west4-a-0", "tpu-europe-west4-a-1", "tpu-us-central1-a-0", "tpu-us-central1-a-1"),
    ]


def test_fleet_works_until_nothing_is_left_and_delete_leaves_nothing(world):
    world.want(per_zone=4)
    world.rest()
    assert (world.left, {one.state for one in world.workers()}) == (0, {"done"})
    assert world.hosts.starts == 8
    world.delete()
    world.rest()
    assert (world.cloud.made, world.cloud.requests, world.workers()) == ({}, {}, [])


@pytest.mark.parametrize("how", ["preempted", "vanished", "silent", "frozen", "hung", "killed"])
def test_lost_worker_comes_again_and_the_work_is_done(world, how):
    world.left = 60
    world.want()
    world.until_working()
    address, program = next(iter(world.hosts.running().items()))
    node = next(one for one in world.cloud.made.values() if one.hosts[0].internal == address)
    if how == "preempted":
        world.cloud.preempt(node.name)
    elif how == "vanished":
        del world.cloud.made[node.name]
        del world.cloud.requests[node.name]
    elif how == "silent":
        world.hosts.silent.add(address)
    elif how == "frozen":
        program.frozen = True
    elif how == "hung":
        program.hangs = True
    else:
        program.code = 137
    world.rest()
    assert (world.left, {one.state for one in world.workers()}) == (0, {"done"})
    anew = world.cloud.made[node.name].id != node.id
    assert anew == (how in ("preempted", "vanished", "silent"))


def test_zone_without_hardware_moves_its_workers_to_another_and_back_nothing_is_left(world):
    world.left = 200
    world.cloud.scarce = True
    world.want(per_zone=1)
    for _ in range(int(300 / 20) + 8):
        world.round()
    world.cloud.scarce = False
    world.until_working()
    assert names(world) == ["tpu-us-central1-a-for-us-central1-b-0", "tpu-us-central1-b-for-us-central1-a-0"]
    world.delete()
    world.rest()
    assert (world.cloud.made, world.cloud.requests) == ({}, {})


@pytest.mark.parametrize("error", [NoCapacity("there is no more capacity in the zone"), Invalid("it has no v3-8")])
def test_zone_that_refuses_at_once_moves_its_workers_to_another(world, monkeypatch, error):
    refuse_in_first_zone(world, monkeypatch, error)
    world.left = 200
    world.want(per_zone=1)
    world.until_working()
    assert names(world) == ["tpu-us-central1-b-0", "tpu-us-central1-b-for-us-central1-a-0"]


def test_zone_that_never_has_the_hardware_fails_workers_that_may_not_move_and_says_why(world, monkeypatch):
    refuse_in_first_zone(world, monkeypatch, Invalid("it has no v3-8"))
    world.want([ZONES[0]], 1)
    world.rest()
    assert [(one.state, one.message) for one in world.workers()] == [("failed", "it has no v3-8")]


def refuse_in_first_zone(world, monkeypatch, error):
    ask = world.cloud.request

    def refuse(zone, request):
        if zone == ZONES[0]:
            raise error
        ask(zone, request)

    monkeypatch.setattr(world.cloud, "request", refuse)


def test_fleet_without_leave_to_move_waits_in_its_zone_and_says_why(world):
    world.cloud.scarce = True
    world.want([ZONES[0]], 1)
    for _ in range(60):
        world.round()
    (worker,) = world.workers()
    assert (worker.zone, worker.message) == (ZONES[0], "us-central1-a has no v3-8 available now")


@pytest.mark.parametrize(
    ("seen", "follows"),
    [
        (Seen(queued="ACCEPTED"), "waits"),  # a request that may be fulfilled only later, after any time
        (Seen(queued=""), "waits"),  # a state unknown to this version
        (Seen(queued="PROVISIONING", node="CREATING"), "waits"),
        (Seen(queued="DELETING"), "waits"),
        (Seen(queued="SUSPENDING", node="TERMINATED", node_id="1"), "deleted"),  # it reached its maximum run time
        (Seen(queued="SUSPENDED"), "deleted"),
        (Seen(queued="FAILED", error="The request expired before it could be fulfilled."), "deleted"),
        (Seen(), "created"),
    ],
)
def test_request_is_waited_for_as_long_as_something_may_come_of_it(seen, follows):
    worker = records.Worker("f", [ZONES[0]], 0, "v3-8", 1.0, zone=ZONES[0], since=1.0)
    act = decide(worker, seen, now=1e6).act
    assert {Delete: "deleted", Create: "created", type(None): "waits"}[type(act)] == follows


@given(
    move_after=st.sampled_from([0.0, 2.0, 300.0]),
    rounds=st.lists(
        st.tuples(st.floats(0.0, 2000.0), st.sampled_from(["waits", "forgotten", "refused", "failed"])), max_size=30
    ),
)
def test_worker_never_leaves_a_zone_in_which_it_was_not_asked_for(move_after, rounds):
    """Holds for slow rounds and for any time without a round."""
    worker = records.Worker("f", ZONES, 0, "v3-8", 1.0, zone=ZONES[0], move_after=move_after)
    now, queued, asked = 1e6, None, False
    for seconds, answer in rounds:
        now += seconds
        decision = decide(worker, Seen(queued=queued, error="there is no more capacity"), now)
        assert decision.value.zone == worker.zone or asked, worker
        asked = decision.value.zone == worker.zone and (asked or isinstance(decision.act, Create))
        worker = decision.value
        if isinstance(decision.act, Delete):
            queued = None
        elif isinstance(decision.act, Create):
            queued = {"waits": "WAITING_FOR_RESOURCES", "failed": "FAILED"}.get(answer)
            if answer == "refused":
                worker = refused(worker, decision.act, "no capacity", now, for_good=False).value


def test_tpu_vm_of_another_that_has_the_name_of_a_worker_is_left_alone_and_another_name_is_used(world):
    world.foreign("tpu-us-central1-a-0")
    before = world.cloud.made["tpu-us-central1-a-0"]
    world.want()
    world.until_working()
    worker = next(one for one in world.workers() if one.slot == "us-central1-a-0")
    assert (worker.tpu, worker.tpu in world.cloud.made) == ("tpu-tpu-us-central1-a-0", True)
    world.delete()
    world.rest()
    assert list(world.cloud.made.values()) == [before]


def test_program_that_fails_again_and_again_is_given_up_with_its_exit_code(world):
    world.want([ZONES[0]], 1)
    world.left = 0
    for _ in range(100):
        for program in world.hosts.running().values():
            program.code = 1
        world.clock.sleep(20)
        if not world.driver.round("tpu"):
            break
    (worker,) = world.workers()
    assert (worker.state, world.hosts.starts) == ("failed", MOST_FAILURES)
    assert "ended with exit code 1, 5 times without a shard" in worker.message


def test_driver_on_another_machine_goes_on_from_labels_alone(world, tmp_path):
    world.left = 100
    world.want()
    world.until_working()
    ids, starts = {node.id for node in world.cloud.made.values()}, world.hosts.starts
    world.move(tmp_path / "elsewhere.db")
    world.want()
    world.rest()
    assert ({node.id for node in world.cloud.made.values()}, world.hosts.starts) == (ids, starts)
    assert world.left == 0


@pytest.mark.parametrize(("before", "after"), [(4, 2), (1, 3)])
def test_number_of_workers_changed_in_the_middle_makes_and_deletes_the_difference(world, before, after):
    world.left = 120
    world.want(per_zone=before)
    world.until_working()
    old = {node.name: node.id for node in world.cloud.made.values()}
    world.want(per_zone=after)
    world.rest()
    new = {node.name: node.id for node in world.cloud.made.values()}
    assert len(new) == 2 * after
    assert {name: id_ for name, id_ in old.items() if name in new}.items() <= new.items()
    assert world.left == 0


TROUBLES = ["preempt", "vanish", "silent", "frozen", "hang", "exit", "scarce", "plenty", "resize", "elsewhere"]


@settings(max_examples=6)
@given(
    troubles=st.lists(
        st.tuples(
            st.sampled_from(TROUBLES),
            st.integers(0, 7),
            st.integers(1, 6),
        ),
        max_size=12,
    )
)
def test_fleet_in_any_trouble_comes_to_rest_with_all_done_and_no_foreign_tpu_touched(tmp_path_factory, troubles):
    folder = tmp_path_factory.mktemp("world")
    world = World(folder, shards=40)
    world.foreign("tpu-us-central1-a-9")
    world.foreign("tpu-us-central1-b-1", ZONES[1])
    foreign = dict(world.cloud.made)
    world.want()
    for number, (kind, which, rounds) in enumerate(troubles):
        own = [one for one in world.cloud.made.values() if one.labels]
        node = own[which % len(own)] if own else None
        program = world.hosts.running().get(node.hosts[0].internal) if node else None
        if kind == "scarce" or kind == "plenty":
            world.cloud.scarce = kind == "scarce"
        elif kind == "resize":
            world.want(per_zone=1 + which % 3)
        elif kind == "elsewhere":
            world.move(folder / f"store-{number}.db")
            world.want()
        elif node and kind == "preempt" and node.state == "READY":
            world.cloud.preempt(node.name)
        elif node and kind == "vanish":
            world.cloud.made.pop(node.name)
            world.cloud.requests.pop(node.queued, None)
        elif node and kind == "silent":
            world.hosts.silent.add(node.hosts[0].internal)
        elif program and kind == "frozen":
            program.frozen = True
        elif program and kind == "hang":
            program.hangs = True
        elif program and kind == "exit":
            program.code = 1
        for _ in range(rounds):
            world.round()
    world.cloud.scarce = False
    world.hosts.silent.clear()  # workers that are alone in their zone stay as they are until they respond
    for _ in range(200):
        world.round()
        open_ = [one for one in world.workers() if one.state != "done"]
        if not open_:
            break
    else:
        raise AssertionError(open_)
    assert world.left == 0
    world.delete()
    world.rest()
    assert (world.cloud.made, world.cloud.requests) == (foreign, {})
    world.close()


def test_more_workers_asked_for_elsewhere_leave_those_that_are_there(world, tmp_path):
    """`tpu fleet create` does this, and `recreate-preempted` on a machine without records of the fleet."""
    world.left = 10_000
    world.want(per_zone=2)
    world.until_working()
    before = {node.name: node.id for node in world.cloud.made.values()}
    world.move(tmp_path / "elsewhere.db")
    world.want([ZONES[0]], 1, only=False)
    for _ in range(8):
        world.round()
    assert {node.name: node.id for node in world.cloud.made.values()} == before


def test_part_of_a_fleet_that_another_machine_made_is_deleted_and_the_rest_left(world, tmp_path):
    """`tpu fleet delete --zones us-central1-a --workers-per-zone 1` does this."""
    world.left = 10_000
    world.want(per_zone=2)
    world.until_working()
    world.move(tmp_path / "elsewhere.db")
    there = located(world.cloud, "tpu", ZONES)
    driver.discard(world.store, "tpu", there, world.clock.now(), lambda slot: slot == "us-central1-a-0", me=ME)
    world.rest()
    assert names(world) == ["tpu-us-central1-a-1", "tpu-us-central1-b-0", "tpu-us-central1-b-1"]


def test_worker_that_another_driver_moved_is_not_made_twice_and_is_deleted_where_it_is(world):
    world.left = 10_000
    world.want(per_zone=1)
    world.until_working()
    world.cloud.delete_queued(ZONES[0], "tpu-us-central1-a-0", world.cloud.requests["tpu-us-central1-a-0"][1].id)
    world.cloud.nodes(ZONES[0])
    moved = next(one for one in world.workers() if one.slot == "us-central1-a-0")
    moved = replace(moved, zone=ZONES[1])
    world.cloud.request(ZONES[1], Request(moved.tpu, (moved.tpu,), "v3-8", "runtime", labels=moved.labels))
    world.until_working()
    assert names(world) == ["tpu-us-central1-b-0", "tpu-us-central1-b-for-us-central1-a-0"]
    assert "us-central1-a-0 is in us-central1-b: another driver moved it" in world.notes
    world.delete()
    world.rest()
    assert (world.cloud.made, world.cloud.requests) == ({}, {})


def test_status_asks_each_zone_once_and_no_host_and_knows_what_another_machine_made(world, tmp_path):
    world.left = 10_000
    world.want(per_zone=3)
    world.until_working()
    world.foreign("tpu-us-central1-a-9")
    world.cloud.preempt("tpu-us-central1-a-1")
    world.move(tmp_path / "elsewhere.db")
    world.hosts.silent |= {host.internal for node in world.cloud.made.values() for host in node.hosts}
    lists = world.cloud.lists
    workers = status(world.cloud, "tpu", [], ZONES, WORK)
    assert world.cloud.lists - lists == len(ZONES)
    states = {one.tpu: one.tpu_state for one in workers}
    assert states.pop("tpu-us-central1-a-1") in LOST
    assert set(states.values()) == {"READY"}
    assert sorted(states) == [
        f"tpu-{zone}-{number}" for zone in ZONES for number in range(3) if (zone, number) != (ZONES[0], 1)
    ]


def test_program_that_fails_on_one_worker_is_given_up_while_the_others_go_on(world):
    """A full disk is one cause; shards of other workers do not count as its progress."""
    world.left = 10_000
    world.want([ZONES[0]], 2)
    world.until_working()
    node = world.cloud.made["tpu-us-central1-a-0"]
    for _ in range(60):
        if program := world.hosts.running().get(node.hosts[0].internal):
            program.code = 1
        world.round()
    assert {one.tpu: one.state for one in world.workers()} == {
        "tpu-us-central1-a-0": "failed",
        "tpu-us-central1-a-1": "active",
    }


def test_lid_that_was_closed_and_clock_that_was_set_cost_no_worker_its_tpu_or_program(world):
    world.left = 10_000
    world.want(per_zone=1)
    world.until_working()
    before = {node.id for node in world.cloud.made.values()}
    world.hosts.silent |= {host.internal for node in world.cloud.made.values() for host in node.hosts}
    for program in world.hosts.running().values():
        program.hangs = True  # nothing in the bucket shows that they are alive
    world.round()
    world.clock.set(world.clock.now() + 8 * 3600)  # no round ran meanwhile
    world.round()
    world.hosts.silent.clear()
    for _ in range(5):
        world.round()
    assert ({node.id for node in world.cloud.made.values()}, world.hosts.starts) == (before, 2)


def test_worker_that_does_not_let_us_in_and_makes_shards_is_left_alone(world):
    world.left = 10_000
    world.want([ZONES[0]], 1)
    world.until_working()
    (node,) = world.cloud.made.values()
    world.hosts.silent.add(node.hosts[0].internal)
    for _ in range(30):
        world.round()
    assert (world.cloud.made[node.name].id, world.workers()[0].silent > 0) == (node.id, True)


def test_driver_that_launches_a_moment_after_another_one_leaves_the_program_of_that_one(world):
    world.left = 10_000
    world.want([ZONES[0]], 1)
    world.until_working()
    (node,), (worker,) = world.cloud.made.values(), world.workers()
    reach = Reach(world.cloud, world.hosts, "ada", True, "other store")
    login = reach.login(ZONES[0], node)
    assert login is not None
    reach.launch(replace(worker, attempt=worker.attempt + 5), login, b"archive", ["python3"], {})
    ((program,),) = world.hosts.programs.values()
    assert (program.code, program.stopped, world.hosts.starts) == (None, False, 1)


def test_workers_that_are_done_look_again_when_somebody_deploys_again(world):
    world.left = 3
    world.want([ZONES[0]], 1)
    world.rest()
    world.left = 3
    world.want([ZONES[0]], 1)
    assert world.driver.round("tpu") == 0
    world.want([ZONES[0]], 1, again=True)
    world.rest()
    assert (world.left, world.hosts.starts) == (0, 2)


@pytest.mark.parametrize(
    "line", ["recreate-preempted --name tpu", "create --name tpu --zones us-central1-a,us-central1-b"]
)
def test_command_that_waits_until_workers_are_ready_believes_no_record_of_before(world, monkeypatch, line):
    """Its first round is refused, and a record says READY for a worker that was preempted since."""
    world.want(per_zone=1, work=None)
    for _ in range(8):
        world.round()
    assert {one.tpu_state for one in world.workers()} == {"READY"}
    world.driver.close()
    world.cloud.preempt("tpu-us-central1-a-0")
    list_, refusing = world.cloud.nodes, set(ZONES)

    def nodes(zone):
        if zone in refusing and threading.current_thread().name.startswith("drive "):
            refusing.remove(zone)
            raise Transient("503")
        return list_(zone)

    monkeypatch.setattr(world.cloud, "nodes", nodes)
    monkeypatch.setattr(context, "store", lambda: world.store)
    monkeypatch.setattr(vms, "cloud", lambda: world.cloud)
    monkeypatch.setattr(fleet_owner, "me", lambda: ME)
    monkeypatch.setattr(fleet_driving, "acting", world.acting)
    monkeypatch.setattr(fleet_driving, "LONGEST_TICK", 0.05)
    done = CliRunner().invoke(command, line.split(), catch_exceptions=False)
    assert (done.exit_code, "2 workers are ready" in done.output, refusing) == (0, True, set())
    assert {node.state for node in list_(ZONES[0])} == {"READY"}


def test_launch_of_before_is_no_answer_to_who_waits_for_one_and_what_is_done_stays_known(world):
    world.left = 10_000
    world.want(per_zone=1)
    world.until_working()
    world.round()
    assert _are_launched(world.workers())
    driver.forget_seen(world.store, "tpu")
    assert not _are_launched(world.workers())
    world.round()
    assert _are_launched(world.workers())
    world.left = 0
    world.rest()
    driver.forget_seen(world.store, "tpu")
    assert {(one.state, one.tpu_state) for one in world.workers()} == {("done", "READY")}
