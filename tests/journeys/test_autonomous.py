"""Jobs in a place that acts by itself, driven by processes that are killed, on one machine or on several.

Invariants: an ended record implies that nothing runs; lost hardware is never charged; every active job makes progress
or reports why not.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from journeys.autonomous import AutonomousPlace
from journeys.world import Killed, World
from tpukit.jobs.reasons import MEANINGS, Budget, Reason, State
from tpukit.jobs.records import Job

RULES = ("pass", "resume", "rerun", "reapply", "pre")


def make(folder: Path, seed: int, **options: object) -> World:
    return World(folder, place=lambda clock: AutonomousPlace(clock, seed), **options)  # type: ignore[arg-type]


def charged(job: Job) -> int:
    reasons = [attempt.reason for attempt in job.attempts if attempt.reason]
    return sum(1 for reason in reasons if MEANINGS[reason].budget is Budget.USER)


def send(world: World, dice: random.Random, name: str) -> str:
    job_id = world.send(name=name, rule=dice.choice(RULES), max={"restarts": dice.randrange(3)})
    world.place.errors[job_id] = dice.choice([0, 0, 1, 2])
    return job_id


def settle(world: World) -> None:
    """Stop all faults, and run until every job ends."""
    world.place.calm = True
    world.place.errors.clear()
    world.run(most=1500)


def check_end(world: World, job_id: str) -> None:
    job = world.job(job_id)
    assert job.state.ended
    assert job.message
    assert not world.place.live(job_id)
    assert charged(job) <= world.place.truth[job_id, Budget.USER], job.attempts
    if job.state is State.FAILED and job.reason is Reason.USER_ERROR:
        assert charged(job) > 0


@pytest.mark.parametrize("seed", range(24))
def test_jobs_end_once_and_nothing_is_charged_that_the_program_did_not_do(tmp_path, seed):
    dice = random.Random(seed)
    world = make(tmp_path, seed)
    ids = [send(world, dice, f"job-{index}") for index in range(4)]
    for _ in range(60):
        world.tick()
    settle(world)
    for job_id in ids:
        check_end(world, job_id)
    world.close()


@pytest.mark.parametrize("seed", range(16))
def test_jobs_stopped_at_any_moment_are_gone_before_the_record_says_so(tmp_path, seed):
    """Compare the record with the place by `check` after every round."""
    dice = random.Random(seed)
    world = make(tmp_path, seed)
    ids = [send(world, dice, f"job-{index}") for index in range(4)]
    for _ in range(40):
        world.tick()
        if dice.random() < 0.15:
            world.ask(dice.choice(ids), "stop")
        for job_id in ids:
            if world.job(job_id).state.ended and dice.random() < 0.1:
                world.ask(job_id, dice.choice(["resume", "rerun"]))
    settle(world)
    for job_id in ids:
        check_end(world, job_id)
    world.close()


@pytest.mark.parametrize("seed", range(4))
def test_driver_killed_at_each_of_its_calls_leaves_nothing_running_and_nothing_charged(tmp_path, seed):
    calm = make(tmp_path / "calm", seed)
    send(calm, random.Random(seed), "job")
    for _ in range(25):
        calm.tick()
    calls = calm.fuse.calls
    calm.close()
    for number in range(calls):
        world = make(tmp_path / str(number), seed)
        job_id = send(world, random.Random(seed), "job")
        world.fuse.set(number, "before")
        if number % 3 == 0:
            world.fuse.just_before("put", lambda world=world, job_id=job_id: world.ask(job_id, "stop"))
        for _ in range(10):
            world.tick()
        settle(world)
        check_end(world, job_id)
        world.close()


@pytest.mark.parametrize("seed", range(12))
def test_two_machines_with_one_store_killed_again_and_again_end_each_job_once(tmp_path, seed):
    dice = random.Random(seed)
    first, second = make(tmp_path, seed, elsewhere=True), make(tmp_path, seed, elsewhere=True)
    second.clock, second.place = first.clock, first.place
    second.store.close()
    second.store = second._open()
    second.driver = second._new_driver()
    ids = [send(first, dice, f"job-{index}") for index in range(5)]
    for world in (first, second):
        for _ in range(25):
            world.fuse.set(dice.randrange(600), "before")
    for _ in range(150):
        first.tick()
        second.tick()
    first.place.calm = True
    first.place.errors.clear()
    for _ in range(800):
        if not first.tick() + second.tick():
            break
    for job_id in ids:
        check_end(first, job_id)
    first.close()
    second.close()


def test_driver_that_was_paused_while_another_took_over_cannot_write_or_end_anything(tmp_path):
    first, second = make(tmp_path, 1, elsewhere=True), make(tmp_path, 1, elsewhere=True)
    second.clock, second.place = first.clock, first.place
    second.store.close()
    second.store = second._open()
    second.driver = second._new_driver()
    job_id = first.send(name="job", rule="pre")
    first.tick()

    def meanwhile() -> None:
        first.clock.sleep(120)
        for _ in range(5):
            second.tick()

    first.fuse.just_before("put", meanwhile)
    before = len(first.complaints)
    for _ in range(3):
        first.tick()
    lease = first.store.lease(f"jobs/{job_id}")
    assert lease is None or lease.holder.machine.startswith(f"machine of driver-{id(second)}")
    assert len(first.complaints) >= before
    settle(second)
    check_end(second, job_id)
    first.close()
    second.close()


def test_killed_is_not_an_error_that_anybody_handles():
    assert not issubclass(Killed, Exception)
