"""TPU VMs whose hosts a driver cannot see well: the driver acts only on evidence that a host is dead."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from support.fleet_world import ZONES, World
from tpukit.core.errors import Denied, Transient
from tpukit.fleet.decide import COMING, READY, WAITING, Create, Delete, Found, Host, Launch, Seen, Stop, decide
from tpukit.fleet.records import Work, Worker


@pytest.fixture
def world(tmp_path: Path):
    made = World(tmp_path)
    made.left = 100_000
    yield made
    made.close()


def ids(world: World) -> dict[str, str]:
    return {node.name: node.id for node in world.cloud.made.values()}


@pytest.mark.parametrize(
    "error", [Transient("10.0.1.2: timed out"), Denied("10.0.1.2: the host does not accept the SSH key")]
)
@pytest.mark.parametrize("idle", [False, True])
def test_ssh_blocked_for_an_hour_deletes_no_tpu_vm_and_launches_and_charges_nothing(world, error, idle):
    world.want(per_zone=2)
    world.until_working()
    before, starts = ids(world), world.hosts.starts
    world.hosts.blocked = error
    for program in world.hosts.running().values():
        program.hangs = idle  # nothing in the bucket shows that they are alive
    for _ in range(3600 // 20):
        world.round()
    assert (ids(world), world.hosts.starts) == (before, starts)
    assert {one.failures for one in world.workers()} == {0}
    if idle:
        assert all("no host in us-central1-" in one.message for one in world.workers()), world.workers()
    world.hosts.blocked = None
    for program in world.hosts.running().values():
        program.hangs = False
    for _ in range(10):
        world.round()
    assert (ids(world), world.hosts.starts) == (before, starts)
    assert {one.message for one in world.workers()} == {""}


def test_new_tpu_vms_that_no_driver_here_can_reach_are_kept(world):
    world.hosts.blocked = Transient("10.0.1.2: timed out")
    world.want(per_zone=1)
    for _ in range(12):
        world.round()
    before = ids(world)
    for _ in range(3600 // 20):
        world.round()
    assert (len(before), ids(world)) == (2, before)


def test_host_silent_for_15_minutes_while_a_host_beside_it_answers_is_recreated(world):
    world.want([ZONES[0]], 2)
    world.until_working()
    silent = world.cloud.made["tpu-us-central1-a-0"]
    world.cloud.lose(silent.name)
    world.hosts.running()[silent.hosts[0].internal].hangs = True
    world.hosts.silent.add(silent.hosts[0].internal)
    before = ids(world)
    for _ in range(800 // 20):
        world.round()
    assert ids(world) == before
    for _ in range(200 // 20):
        world.round()
    after = ids(world)
    assert after["tpu-us-central1-a-1"] == before["tpu-us-central1-a-1"]
    assert after.get("tpu-us-central1-a-0") != before["tpu-us-central1-a-0"]


def test_host_that_refuses_our_key_while_others_answer_is_kept(world):
    world.want([ZONES[0]], 2)
    world.until_working()
    node = world.cloud.made["tpu-us-central1-a-0"]
    world.hosts.running()[node.hosts[0].internal].hangs = True
    world.hosts.denied.add(node.hosts[0].internal)
    before = ids(world)
    for _ in range(3600 // 20):
        world.round()
    assert ids(world) == before


def test_silent_host_whose_worker_renews_its_claim_in_the_bucket_is_kept(world):
    """A shard may take longer than the silence: the claim on its stream shows that the worker is alive."""
    world.want([ZONES[0]], 2)
    world.until_working()
    node = world.cloud.made["tpu-us-central1-a-0"]
    world.hosts.running()[node.hosts[0].internal].slow = True
    world.hosts.silent.add(node.hosts[0].internal)
    before = ids(world)
    for _ in range(3600 // 20):
        world.round()
    assert ids(world) == before


def test_driver_suspended_between_two_looks_at_a_silent_host_has_no_proof_of_its_death(world):
    world.want([ZONES[0]], 2)
    world.until_working()
    node = world.cloud.made["tpu-us-central1-a-0"]
    world.hosts.running()[node.hosts[0].internal].hangs = True
    world.hosts.silent.add(node.hosts[0].internal)
    before = ids(world)
    world.round()
    for _ in range(3):
        world.round(1200.0)
    assert ids(world) == before


STATES = [None, *COMING, *READY, "DELETING", "PREEMPTED", "TERMINATED", "A_NEW_WORD"]
QUEUED = [None, *WAITING, "ACTIVE", "DELETING", "FAILED", "SUSPENDED"]
HOSTS = st.none() | st.builds(
    Host,
    running=st.sampled_from([0, 3, 7]),
    code=st.sampled_from([None, 0, 1, 137]),
    lost=st.booleans(),
    frozen=st.booleans(),
    latest=st.integers(0, 9),
)
FOUND = st.builds(
    Found,
    zone=st.sampled_from([*ZONES, "europe-west4-a"]),
    name=st.sampled_from(["tpu-us-central1-a-0", "tpu-us-central1-b-for-us-central1-a-0", "tpu-f-us-central1-a-0"]),
    node=st.sampled_from(STATES),
    node_id=st.just("9"),
    queued=st.sampled_from(QUEUED),
    queued_id=st.just("q9"),
).filter(lambda one: one.node is not None or one.queued is not None)
SEEN = st.builds(
    Seen,
    node=st.sampled_from(STATES),
    node_id=st.sampled_from(["", "1"]),
    queued=st.sampled_from(QUEUED),
    queued_id=st.just("q1"),
    foreign=st.booleans(),
    host=HOSTS,
    unseen=st.sampled_from(["", "10.0.1.2: timed out"]),
    proven=st.sampled_from([0.0, 60.0, 899.0]),
    quiet=st.sampled_from([0.0, 1e6]),
    elsewhere=st.lists(FOUND, max_size=2).map(tuple),
    hidden=st.sampled_from([(), (ZONES[1],)]),
)
WORKER = st.builds(
    Worker,
    fleet=st.just("f"),
    zones=st.just(ZONES),
    number=st.just(0),
    tpu_type=st.just("v3-8"),
    order=st.just(1.0),
    zone=st.sampled_from(ZONES),
    wanted=st.sampled_from(["ready", "work"]),
    work=st.just(Work("d", "o", "p:make")),
    moving=st.just(False),
    since=st.just(0.0),
    attempt=st.sampled_from([0, 3]),
    launched=st.integers(0, 9),
    distinct=st.booleans(),
    used=st.sampled_from([[], [ZONES[1]], ZONES]),
)


@given(worker=WORKER, seen=SEEN)
def test_tpu_vm_that_is_alive_is_deleted_only_where_the_worker_has_another_or_may_not_be(worker, seen):
    """Silence, blindness and any answer of the host are not proof of death."""
    assume(len({(worker.zone, worker.tpu), *((one.zone, one.name) for one in seen.elsewhere)}) > len(seen.elsewhere))
    decision = decide(worker, seen, now=1e6)
    if not isinstance(decision.act, Delete):
        return
    gone = {(one.zone, one.name) for one in decision.act.targets}
    here = Found(worker.zone, worker.tpu, seen.node, seen.node_id, seen.queued, seen.queued_id)
    every = {(one.zone, one.name): one for one in (*seen.elsewhere, here)}
    kept = (decision.value.zone, decision.value.tpu)
    assert kept not in gone or not is_alive(every[kept]), (seen, decision)
    if any(is_alive(every[one]) and one[0] in worker.zones for one in gone):
        assert kept in every, (seen, decision)


def is_alive(one: Found) -> bool:
    return one.node in (*READY, *COMING)


@given(worker=WORKER, seen=SEEN, wanted=st.sampled_from(["ready", "work", "gone"]))
def test_hardware_of_others_is_never_acted_upon(worker, seen, wanted):
    act = decide(replace(worker, wanted=wanted), seen, now=1e6).act
    if seen.foreign:
        assert not isinstance(act, (Create, Launch, Stop))
        if isinstance(act, Delete):
            own = {(one.zone, one.name) for one in seen.elsewhere}
            assert {(one.zone, one.name) for one in act.targets} <= own


@given(worker=WORKER, seen=SEEN)
def test_every_delete_names_what_it_expects(worker, seen):
    act = decide(worker, seen, now=1e6).act
    if isinstance(act, Delete):
        assert act.targets
        assert all(one.node_id or one.queued_id for one in act.targets)


@given(worker=WORKER, seen=SEEN)
def test_launch_has_a_higher_number_than_any_that_the_record_or_the_host_knows(worker, seen):
    decision = decide(worker, seen, now=1e6)
    if isinstance(decision.act, Launch):
        assert decision.value.attempt > max(worker.attempt, worker.launched, seen.host.latest if seen.host else 0)
        assert decision.value.launched == decision.value.attempt
