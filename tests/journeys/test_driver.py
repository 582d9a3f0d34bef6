"""Jobs through their whole life in a simulated place: guarantees of a driver, also when it is killed at any call."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from msgspec.structs import replace

from journeys.world import Try, World
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import JOBS, Attempt
from tpukit.jobs.rules import ATTEMPTS_WITHOUT_PROGRESS
from tpukit.kernel.leases import SECONDS
from tpukit.kernel.store import Holder, change
from tpukit.kernel.store.process import this_process
from tpukit.places.capabilities import Capabilities


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    made = World(tmp_path)
    yield made
    made.close()


def reasons(world: World, job_id: str) -> list[Reason | None]:
    return [attempt.reason for attempt in world.job(job_id).attempts]


def test_job_that_ends_well_completes_in_one_attempt(world):
    job_id = world.send(Try())
    world.run()
    assert world.summary(job_id) == (State.COMPLETED, Reason.DONE, [(0, 0, 0, Reason.DONE, -1)])


def test_job_preempted_twice_resumes_and_completes(world):
    job_id = world.send(Try(Reason.PREEMPTED, saves=3), Try(Reason.HOST_LOST, saves=4), Try())
    world.run()
    state, reason, tries = world.summary(job_id)
    assert (state, reason) == (State.COMPLETED, Reason.DONE)
    assert tries == [(0, 0, 0, Reason.PREEMPTED, 2), (1, 1, 0, Reason.HOST_LOST, 6), (2, 2, 0, Reason.DONE, 6)]


def test_job_under_rule_rerun_that_loses_a_peer_begins_again(world):
    job_id = world.send(Try(Reason.PEER_LOST, saves=3), Try(), rule="rerun")
    world.run()
    assert world.summary(job_id)[2] == [(0, 0, 0, Reason.PEER_LOST, 2), (1, 0, 1, Reason.DONE, -1)]


def test_job_that_fails_is_restarted_as_often_as_allowed(world):
    failing = Try(Reason.USER_ERROR)
    job_id = world.send(failing, failing, failing, failing, max={"restarts": 2})
    world.run()
    assert (world.job(job_id).state, reasons(world, job_id)) == (State.FAILED, [Reason.USER_ERROR] * 3)


def test_job_whose_hardware_never_lasts_is_given_up(world):
    job_id = world.send(*[Try(Reason.HOST_LOST)] * (ATTEMPTS_WITHOUT_PROGRESS + 5))
    world.run(most=2000)
    assert world.job(job_id).state is State.FAILED
    assert len(world.job(job_id).attempts) == ATTEMPTS_WITHOUT_PROGRESS


def test_job_that_lost_our_port_is_tried_again_under_every_rule_and_never_charged(world):
    for rule in ("pass", "resume", "rerun", "reapply", "pre"):
        job_id = world.send(Try(Reason.PORT_LOST), Try(), rule=rule, max={"restarts": 0})
        world.run()
        assert (world.job(job_id).state, reasons(world, job_id)) == (State.COMPLETED, [Reason.PORT_LOST, Reason.DONE])


def test_job_that_saves_each_time_is_never_given_up(world):
    job_id = world.send(*[Try(Reason.HOST_LOST, saves=1)] * 30, Try())
    world.run(most=2000)
    assert world.job(job_id).state is State.COMPLETED


def test_job_that_hangs_is_stopped_named_and_resumed(world):
    job_id = world.send(Try(hangs=True, saves=2), Try(), max={"stall": "30s"})
    world.run()
    first = world.job(job_id).attempts[0]
    assert (first.reason, first.host) == (Reason.HANG, f"{job_id}-slice-0-0")
    assert 30 <= first.ended - first.started < 40
    assert world.job(job_id).state is State.COMPLETED


def test_job_past_its_runtime_is_stopped_and_failed(world):
    job_id = world.send(Try(runs=1000), max={"runtime": "60s"})
    world.run()
    assert world.summary(job_id)[:2] == (State.FAILED, Reason.TIMEOUT)


def test_job_that_ignores_the_request_to_leave_is_killed_after_its_grace(world):
    job_id = world.send(Try(runs=1000, leaves=500), max={"grace": "7s"})
    world.until(lambda: world.job(job_id).state is State.RUNNING)
    world.ask(job_id, "stop")
    asked = world.clock.now()
    world.run()
    assert world.job(job_id).state is State.CANCELLED
    assert 7 <= world.job(job_id).ended - asked <= 9


@pytest.mark.parametrize("ticks", range(14))
def test_job_stopped_at_any_tick_of_its_life_ends_cancelled_or_completed(world, ticks):
    job_id = world.send(Try(Reason.USER_ERROR, runs=3), Try(runs=3), max={"restarts": 1})
    for _ in range(ticks):
        world.tick()
    world.ask(job_id, "stop")
    world.run()
    assert world.job(job_id).state in (State.CANCELLED, State.COMPLETED)
    assert world.place.live(job_id) == []


@pytest.mark.parametrize(("asked", "stage", "origin"), [("resume", 1, 0), ("rerun", 0, 1)])
def test_job_asked_for_again_runs_again(world, asked, stage, origin):
    job_id = world.send(Try(Reason.USER_ERROR), Try())
    world.run()
    assert world.job(job_id).state is State.FAILED
    world.ask(job_id, asked)
    world.run()
    assert world.job(job_id).state is State.COMPLETED
    assert (world.job(job_id).attempt.stage, world.job(job_id).attempt.origin) == (stage, origin)


def test_job_stopped_before_its_first_attempt_can_be_run_after_all(world):
    job_id = world.send(Try())
    world.ask(job_id, "stop")
    world.run()
    assert (world.job(job_id).state, world.job(job_id).attempts) == (State.CANCELLED, ())
    world.ask(job_id, "resume")
    world.run()
    assert world.job(job_id).state is State.COMPLETED


def test_job_that_a_busy_place_refuses_is_tried_again_and_said_so_once(world):
    job_id = world.send(Try(refusals=4))
    world.run()
    assert world.job(job_id).state is State.COMPLETED
    assert world.complaints == ["the place is busy"]


def test_job_that_can_never_start_ends_with_its_reason_once_its_first_host_is_gone(tmp_path):
    """Check by `check` after every round that the record shows no end while that host runs, then run the next job."""
    world = World(tmp_path, parallel=1)
    stuck = world.send(Try(runs=1000, leaves=5, impossible=True), name="stuck")
    world.clock.sleep(1)
    behind = world.send(Try(), name="behind")
    world.run()
    assert world.summary(stuck)[:2] == (State.FAILED, Reason.CANNOT_START)
    assert "the workdir is a file" in world.job(stuck).message
    assert world.job(behind).state is State.COMPLETED
    world.close()


@pytest.mark.parametrize("parallel", [0, 2])
def test_job_whose_record_cannot_be_read_does_not_keep_others_waiting(tmp_path, parallel):
    world = World(tmp_path, parallel=parallel)
    broken, sound = world.send(Try(), name="broken"), world.send(Try(), name="sound")
    newer = {"spec": {"name": "broken", "field_of_a_newer_version": 1}}
    change(world.store, JOBS, broken, lambda job: replace(job, plan=newer))
    for _ in range(20):
        world.tick()
    assert world.job(sound).state is State.COMPLETED
    assert world.job(broken).state is State.PENDING
    assert len(world.complaints) == 1
    world.close()


def test_jobs_in_parallel_are_no_more_than_allowed_and_served_in_turn(tmp_path):
    world = World(tmp_path, parallel=3)
    ids = [world.send(Try(runs=4), name=f"job-{index}") for index in range(10)]
    begun = []
    while world.tick():
        live = [job_id for job_id in ids if world.place.live(job_id)]
        assert len(live) <= 3
        begun += [job_id for job_id in live if job_id not in begun]
    world.close()
    assert begun == ids


def test_jobs_elsewhere_do_not_wait_for_room_on_this_machine(tmp_path):
    world = World(tmp_path, parallel=1)
    world.place.capabilities = Capabilities()
    ids = [world.send(Try(runs=4), name=f"job-{index}") for index in range(3)]
    world.tick()
    assert all(world.place.live(job_id) for job_id in ids)
    world.close()


def test_jobs_of_another_machine_take_no_room_on_this_one(tmp_path):
    """List jobs of a shared store here, but drive them only on their machine."""
    world = World(tmp_path, parallel=1)
    theirs = [world.send(Try(runs=4), name=f"theirs-{index}") for index in range(3)]
    world.place.group = lambda plan: None if plan.id in theirs else ""
    begun = Attempt(0, stage=0, origin=0, state=State.RUNNING)
    for job_id in theirs:  # they run there
        change(world.store, JOBS, job_id, lambda job: replace(job, attempts=(begun,), state=State.RUNNING))
    mine = world.send(Try(runs=4), name="mine")
    world.driver.round()
    assert world.place.live(mine)
    assert not any(world.place.live(job_id) for job_id in theirs)
    world.close()


def test_two_drivers_on_one_store_drive_each_job_once(tmp_path):
    first, second = World(tmp_path, elsewhere=True), World(tmp_path, elsewhere=True)
    second.place, second.clock = first.place, first.clock
    second.driver = second._new_driver()
    ids = [first.send(Try(Reason.PREEMPTED, runs=3), Try(), name=f"job-{index}") for index in range(4)]
    while first.tick() + second.tick():
        pass
    assert {first.summary(job_id)[0] for job_id in ids} == {State.COMPLETED}
    first.close()
    second.close()


def test_job_held_by_another_process_is_left_to_it_until_it_gives_it_back(world):
    job_id = world.send(Try())
    lease = world.store.acquire(f"jobs/{job_id}", this_process(), 600)
    for _ in range(3):
        world.tick()
    assert world.job(job_id).attempts == ()
    world.store.release(lease)
    world.run()
    assert world.job(job_id).state is State.COMPLETED


def test_job_of_a_driver_on_another_machine_is_taken_up_when_its_lease_has_lapsed(world):
    job_id = world.send(Try())
    assert world.store.acquire(f"jobs/{job_id}", Holder("gone", "another machine", 1, "then"), SECONDS)
    begun = world.clock.now()
    world.run()
    assert world.job(job_id).state is State.COMPLETED
    assert world.job(job_id).attempts[0].started - begun >= SECONDS


def test_job_that_another_process_ends_first_is_not_driven_on(world):
    """Write the end after the job is listed and before it is held."""
    job_id = world.send(Try(Reason.PREEMPTED), Try())
    world.until(lambda: world.job(job_id).state is State.PENDING and bool(world.job(job_id).attempts))
    ended = {"state": State.CANCELLED, "reason": Reason.CANCELLED, "ended": 1.0}
    world.fuse.just_before("put", lambda: change(world.store, JOBS, job_id, lambda job: replace(job, **ended)))
    world.run()
    assert (world.job(job_id).state, len(world.job(job_id).attempts)) == (State.CANCELLED, 1)


def test_request_that_comes_while_the_driver_decides_is_not_lost(world):
    """Write the stop request after the record is read and before the decision."""
    job_id = world.send(Try(runs=50))
    world.fuse.just_before("put", lambda: world.ask(job_id, "stop"))
    world.tick()
    assert (world.job(job_id).state, world.job(job_id).attempts) == (State.CANCELLED, ())


def test_tag_that_comes_while_the_driver_decides_is_not_lost(world):
    job_id = world.send(Try())
    world.fuse.just_before("put", lambda: change(world.store, JOBS, job_id, lambda job: replace(job, tags=("new",))))
    world.run()
    assert (world.job(job_id).tags, world.job(job_id).state) == (("new",), State.COMPLETED)


def test_machine_that_slept_and_a_clock_that_was_set_back_make_nobody_hang_fail_or_wait(world):
    ids = [
        world.send(Try(runs=40), name="runs", max={"stall": "30s", "runtime": "1h"}),
        world.send(Try(Reason.USER_ERROR), Try(), name="waits", max={"restarts": 1}),
    ]
    for _ in range(4):
        world.tick()
    world.clock.set(world.clock.now() + 7200)  # the machine slept
    for attempt in world.place.attempts.values():
        attempt.began += 7200  # processes slept too
    world.tick()
    world.clock.set(world.clock.now() - 86400)
    for attempt in world.place.attempts.values():
        attempt.began -= 86400
    world.run(most=120)
    assert [world.job(job_id).state for job_id in ids] == [State.COMPLETED] * 2


# -- killed at every call ------------------------------------------------------------------------------------------


def plain(world: World) -> str:
    return world.send(Try())


def preempted(world: World) -> str:
    return world.send(Try(Reason.PREEMPTED, saves=3), Try())


def failing(world: World) -> str:
    return world.send(Try(Reason.USER_ERROR), Try(Reason.USER_ERROR), max={"restarts": 1})


def hanging(world: World) -> str:
    return world.send(Try(hangs=True), Try(), max={"stall": "2s"})


def too_long(world: World) -> str:
    return world.send(Try(runs=1000), max={"runtime": "2s"})


def refused(world: World) -> str:
    return world.send(Try(refusals=2))


def stopped(world: World) -> str:
    """Stop the job once its record has an attempt, which may exist not at all, half or completely."""
    job_id = world.send(Try(runs=1000))
    world.fuse.just_before("observe", lambda: world.ask(job_id, "stop"))
    return job_id


STORIES: dict[str, Callable[[World], str]] = {
    story.__name__: story for story in (plain, preempted, failing, hanging, too_long, refused, stopped)
}


@pytest.mark.parametrize("story", STORIES)
def test_driver_killed_before_each_of_its_calls_ends_the_job_the_same_way(tmp_path, story):
    """Kill before each call, which covers a kill after the previous one."""
    calm = World(tmp_path / "calm")
    job_id = STORIES[story](calm)
    calm.run()
    expected = calm.summary(job_id)
    calls = calm.fuse.log
    calm.close()
    assert {"list", "acquire", "put", "submit", "observe"} <= set(calls)
    for number, name in enumerate(calls):
        for how in ("before", "midway") if name == "submit" else ("before",):
            world = World(tmp_path / f"{number}-{how}")
            world.fuse.set(number, how)
            assert STORIES[story](world) == job_id
            world.run()
            assert world.summary(job_id) == expected, f"killed {how} call {number}, {name}"
            world.close()


@pytest.mark.parametrize("seed", range(12))
def test_driver_killed_again_and_again_loses_and_doubles_nothing(tmp_path, seed):
    dice = random.Random(seed)
    world = World(tmp_path, parallel=dice.choice([0, 2]))
    ids = {}
    for index in range(6):
        story = dice.choice([preempted, failing, hanging, plain])
        job_id = story(world)
        ids[job_id] = State.FAILED if story is failing else State.COMPLETED
        world.clock.sleep(0.001 * index)
    for _ in range(40):
        world.fuse.set(dice.randrange(400), dice.choice(["before", "midway"]))
    world.run(most=2000)
    assert {job_id: world.job(job_id).state for job_id in ids} == ids
    world.close()
