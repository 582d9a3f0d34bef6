"""Drivers on two machines with one store on Firestore (Google's emulator), over a place that acts by itself."""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from journeys.autonomous import AutonomousPlace
from journeys.world import World
from support.firestore_emulator import PROJECT, Emulator, emulator
from tpukit.core.errors import Transient
from tpukit.jobs.reasons import MEANINGS, Budget
from tpukit.kernel import leases
from tpukit.kernel.store import Store
from tpukit.kernel.store.home import open_store

LEASE_SECONDS = 1.0
"""Short, because leases follow the server's clock, which is a real one here."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with emulator(tmp_path_factory.mktemp("firestore") / "log") as running:
        yield running


@pytest.fixture(autouse=True)
def short_leases(server: Emulator, monkeypatch: pytest.MonkeyPatch) -> None:
    server.reset()
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", server.address)
    monkeypatch.setattr(leases, "SECONDS", LEASE_SECONDS)


class Machine(World):
    """A driver with its own state folder. All drivers share the store and the place."""

    def _open(self) -> Store:
        return open_store(f"firestore://{PROJECT}", self._folder)


def machines(folder: Path, seed: int) -> tuple[Machine, Machine]:
    first = Machine(folder / "one", elsewhere=True, place=lambda clock: AutonomousPlace(clock, seed))
    second = Machine(folder / "two", elsewhere=True, place=lambda clock: first.place)
    second.clock = first.clock
    second.store.close()
    second.store = second._open()
    second.driver = second._new_driver()
    return first, second


def run(both: tuple[Machine, Machine], rounds: int) -> bool:
    """Run rounds until no job is active. Return False if jobs remain."""
    for _ in range(rounds):
        if not sum(machine.tick() for machine in both):
            return True
        time.sleep(0.02)  # leases lapse by the server's clock
    return False


def check(first: Machine, ids: list[str]) -> None:
    for job_id in ids:
        job = first.job(job_id)
        reasons = [attempt.reason for attempt in job.attempts if attempt.reason]
        charged = sum(1 for reason in reasons if MEANINGS[reason].budget is Budget.USER)
        assert job.state.ended, job
        assert not first.place.live(job_id)
        assert charged <= first.place.truth[job_id, Budget.USER]


def settle(both: tuple[Machine, Machine]) -> None:
    both[0].place.calm = True
    both[0].place.errors.clear()
    assert run(both, 600), both[0].active()


def send(first: Machine, seed: int, jobs: int) -> list[str]:
    dice = random.Random(seed)
    ids = []
    for index in range(jobs):
        fields: dict[str, Any] = {"rule": dice.choice(["pass", "pre", "rerun"]), "max": {"restarts": 1}}
        ids.append(first.send(name=f"job-{index}", **fields))
        first.place.errors[ids[-1]] = dice.choice([0, 1])
    return ids


@pytest.mark.parametrize("seed", range(3))
def test_drivers_killed_again_and_again_end_each_job_once_and_leave_nothing_running(tmp_path, seed):
    both = machines(tmp_path, seed)
    ids = send(both[0], seed, 3)
    dice = random.Random(seed)
    for machine in both:
        for _ in range(15):
            machine.fuse.set(dice.randrange(200), "before")
    run(both, 40)
    settle(both)
    check(both[0], ids)
    for machine in both:
        machine.close()


def test_drivers_killed_at_each_of_their_first_calls_end_the_job_once(tmp_path, server):
    for number in range(14):
        server.reset()
        both = machines(tmp_path / str(number), seed=7)
        ids = send(both[0], 7, 1)
        for machine in both:
            machine.fuse.set(number, "before")
        run(both, 4)
        settle(both)
        check(both[0], ids)
        for machine in both:
            machine.close()


def test_store_that_is_away_stops_nothing_for_good(tmp_path, server):
    both = machines(tmp_path, seed=3)
    ids = send(both[0], 3, 2)
    run(both, 3)
    server.pause()
    try:
        for machine in both:
            with pytest.raises(Transient, match=r"firestore://.* could not be reached"):
                machine.driver.round()
    finally:
        server.resume()
    settle(both)
    check(both[0], ids)
    for machine in both:
        machine.close()
