"""A driver of jobs on TPU VMs, suspended before any of its calls while others use the same TPU VM."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextvars import Context
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from support.simulated_tpu_zones import TpuZones
from support.simulated_trainings import Channel, Program, Trainings
from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import TpukitError
from tpukit.google.tpu_vm import Node, Request
from tpukit.jobs import plan
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.plan import VmTarget
from tpukit.jobs.records import JOBS, Job
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store import Holder, change
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.suspects import MINIMUM_AGE
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.places.tpu_vm.channel import Answer, Call

ZONE = "us-central2-b"
PAUSE = 120.0
SHARED = "shared"
STEP = 30.0
"""Seconds between two rounds."""
LOOKS = 400
"""Rounds after which a missing event counts as a failure."""


@dataclass
class Hooked:
    """An object whose methods first call `before` with their names."""

    real: Any
    before: Callable[[str], None]

    def __getattr__(self, name: str) -> Any:
        found = getattr(self.real, name)
        if not callable(found):
            return found

        def call(*args: Any, **options: Any) -> Any:
            self.before(name)
            return found(*args, **options)

        return call


@dataclass
class HookedChannel(Channel):
    before: Callable[[str], None] = lambda name: None

    def ask(self, calls: Sequence[Call]) -> list[Answer | TpukitError]:
        answers = []
        for call in calls:
            self.before(f"ssh {call.request['do']}")
            if call.changes:  # as the real channel does once its connection is established
                fence.check()
            answers.append(self._ask(call))
        return answers


class Machine:
    """A driver with its own key and folder, and its user's store."""

    def __init__(self, world: World, name: str, store: SqliteStore, sender: str) -> None:
        self.world, self.store = world, store
        self.before: Callable[[str], None] = lambda name: None
        cloud = Hooked(world.zones, self._before)
        key = f"ssh-ed25519 {name}"
        channel = HookedChannel(world.zones.reach, world.trainings, lambda _: "", key, self._before)
        self.place = TpuVmPlace(
            world.folder / name, world.clock, lambda: sender, cloud=lambda _: cloud, channel=lambda *_: channel
        )
        seen = Hooked(store, self._before)
        self.driver = Driver(seen, {"tpu-vm": self.place}, world.clock, Holder(name, f"machine {name}"))  # type: ignore[arg-type]

    def _before(self, name: str) -> None:
        self.before(name)

    def send(self, name: str, on: tuple[str, ...] = ()) -> str:
        self.world.trainings.programs[name] = Program(1e9)
        spec = {"name": name, "tpu": "v4-16", "command": ["python", "main.py", name], "rule": "reapply"}
        settings = Settings.from_json({"project": "tpu-project", "zone": ZONE, "ssh_user": "ada"})
        made = plan.make(JobSpec.from_json(spec | {"workdir": f"gs://bucket/{name}"}), settings, "tpu-vm", taken=())
        if on:
            made = replace(made, target=VmTarget("", "", "", on))
        made = self.place.prepare(made)
        job = Job(made.id, "tpu-vm", made.team, "ada", self.world.clock.now(), plan=made.to_json())
        self.store.create(JOBS, made.id, job)
        return made.id

    def job(self, job_id: str) -> Job:
        return self.store.get(JOBS, job_id).value

    def until(self, job_id: str, true: Callable[[Job], bool]) -> None:
        for _ in range(LOOKS):
            self.driver.round([job_id])
            if true(self.job(job_id)):
                return
            self.world.clock.sleep(STEP)
        job = self.job(job_id)
        raise AssertionError(f"{job_id} is {job.state}: {job.message}; {[one.reason for one in job.attempts]}")

    def runs(self, job_id: str) -> None:
        self.until(job_id, lambda job: job.state == "running")

    def end(self, job_id: str) -> None:
        change(self.store, JOBS, job_id, lambda job: structs.replace(job, wanted="stop"))
        self.until(job_id, lambda job: job.state.ended)


class World:
    def __init__(self, folder: Path) -> None:
        self.folder, self.clock, dice = folder, ManualClock(), random.Random(1)
        self.trainings = Trainings(self.clock, dice, calm=True)
        self.zones = TpuZones(folder, clock=self.clock, dice=dice, trainings=self.trainings)
        self.stores: list[SqliteStore] = []
        mine, theirs = self._store("mine"), self._store("theirs")
        self.first, self.second = Machine(self, "first", mine, "mine"), Machine(self, "second", mine, "mine")
        self.other = Machine(self, "other", theirs, "theirs")

    def close(self) -> None:
        for store in self.stores:
            store.close()

    def _store(self, name: str) -> SqliteStore:
        self.stores.append(SqliteStore(self.folder / f"{name}.db", now=self.clock.now))
        return self.stores[-1]

    def node(self) -> Node | None:
        return self.zones.made.get(SHARED)

    def ensure(self) -> None:
        """Create the TPU VM if it is missing and wait until it is ready, as a person does."""
        for _ in range(LOOKS):
            there = {node.name: node for node in self.zones.nodes(ZONE)}
            if SHARED in there and there[SHARED].state == "READY" and self.zones.host_keys(ZONE, SHARED):
                return
            if SHARED not in there and SHARED not in {one.name for one in self.zones.queued(ZONE)}:
                keys = {"ssh-keys": "ada:ssh-ed25519 person"}
                self.zones.request(ZONE, Request(SHARED, (SHARED,), "v4-16", "base", metadata=keys))
            self.clock.sleep(STEP)
        raise AssertionError(f"{SHARED} does not come")

    def lose_peer(self) -> None:
        """Make the program on the shared TPU VM lose its peers; the TPU VM itself stays."""
        (training,) = self.trainings.running.values()
        training.fate, training.lasts = "peer", self.clock.now() - training.started + 1.0

    def taken(self, owner: str) -> str:
        """Run the other user's job on the TPU VM from now on."""
        self.zones.acting = "a person"
        self.ensure()
        job_id = self.other.send(owner, (SHARED,))
        self.zones.acting = job_id
        self.other.runs(job_id)
        return job_id


@pytest.fixture
def new_world(tmp_path: Path) -> Iterator[Callable[[], World]]:
    made: list[World] = []

    def world() -> World:
        folder = tmp_path / str(len(made))
        folder.mkdir()
        made.append(World(folder))
        return made[-1]

    yield world
    for one in made:
        one.close()


def paused(world: World, number: int, meanwhile: Callable[[], None]) -> list[str]:
    """Suspend the first driver before its call of that number, and return the names of its calls."""
    calls: list[str] = []

    def before(name: str) -> None:
        calls.append(name)
        if len(calls) == number + 1:
            acting = world.zones.acting
            world.clock.suspend(PAUSE)
            Context().run(meanwhile)  # outside the fence of the suspended driver
            world.zones.acting = acting

    world.first.before = before
    return calls


def go_on(world: World, job_id: str) -> None:
    for _ in range(12):
        world.zones.acting = job_id
        world.first.driver.round()
        world.zones.acting = "sweep"
        world.first.driver.sweep()
        world.second.driver.sweep()
        world.clock.sleep(MINIMUM_AGE / 3)


def begun_on_the_shared_one(world: World) -> str:
    """Start a job whose program lost its peers, so that its rule recreates the TPU VM."""
    world.ensure()
    job_id = world.first.send("train", (SHARED,))
    world.zones.acting = job_id
    world.first.runs(job_id)
    world.lose_peer()
    world.clock.sleep(5.0)
    return job_id


def violations(world: World, before: Node | None, theirs: str) -> list[str]:
    found = list(world.trainings.violations)
    now = world.node()
    if now is None or before is None or replace(now, metadata={}) != replace(before, metadata={}):
        found.append(f"the TPU VM was {before} and is {now}")
    elif not set(before.metadata["ssh-keys"].splitlines()) <= set(now.metadata["ssh-keys"].splitlines()):
        found.append(f"keys of others were removed: {now.metadata}")
    training = world.trainings.running.get((theirs, 0))
    if training is None or not training.alive or training.stops:
        found.append(f"{theirs} was stopped")
    world.zones.acting = theirs
    world.other.driver.round([theirs])
    job = world.other.job(theirs)
    if job.state != "running" or len(job.attempts) != 1:
        found.append(f"{theirs} is {job.state} with {len(job.attempts)} attempts: {job.message}")
    return found


def each_pause(run: Callable[[int], bool]) -> int:
    """Run for each call of the suspended driver, and return their number."""
    number = 0
    while run(number):
        number += 1
    return number


@pytest.mark.parametrize("who", ["another driver ends the job", "the job goes on"])
def test_driver_suspended_before_any_call_leaves_the_shared_tpu_vm_to_the_job_that_runs_there(new_world, who):
    found: dict[str, list[str]] = {}

    def run(number: int) -> bool:
        world = new_world()
        job_id = begun_on_the_shared_one(world)
        after: list[tuple[Node | None, str]] = []

        def meanwhile() -> None:
            if who == "another driver ends the job":
                world.zones.acting = job_id
                world.second.end(job_id)
            elif world.trainings.running:
                return  # the job has it, and no other job can take it
            theirs = world.taken("theirs")
            after.append((world.node(), theirs))

        calls = paused(world, number, meanwhile)
        for _ in range(LOOKS):
            world.zones.acting = job_id
            world.first.driver.round()
            if len(calls) > number or (len(world.first.job(job_id).attempts) > 1 and world.trainings.running):
                break
            world.clock.sleep(STEP)
        if len(calls) <= number:
            return False
        if after:
            go_on(world, job_id)
            if wrong := violations(world, *after[0]):
                found[f"{number} {calls[number]}"] = wrong
        return True

    assert each_pause(run) > 20
    assert found == {}


def test_driver_suspended_before_any_call_creates_nothing_that_a_sweep_leaves(new_world):
    found: dict[str, list[str]] = {}

    def run(number: int) -> bool:
        world = new_world()
        job_id = world.first.send("train")

        def meanwhile() -> None:
            world.zones.acting = job_id
            world.second.end(job_id)

        calls = paused(world, number, meanwhile)
        for _ in range(LOOKS):
            world.zones.acting = job_id
            world.first.driver.round()
            if len(calls) > number or world.trainings.running:
                break
            world.clock.sleep(STEP)
        if len(calls) <= number:
            return False
        go_on(world, job_id)
        left = [*world.zones.made, *world.zones.requests, *world.trainings.violations]
        if left or not world.first.job(job_id).state.ended:
            found[f"{number} {calls[number]}"] = left
        return True

    assert each_pause(run) > 20
    assert found == {}
