"""Silences of healthy and of hung programs, as a driver hears them: each judged rightly, and the right host blamed."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.jobs.controller.decide import EXCUSED_MOST, Act, decide
from tpukit.jobs.controller.liveness import FROZEN_SECONDS, MOST_AT_ONCE, Liveness
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt, Job
from tpukit.jobs.spec import JobSpec
from tpukit.places.base import HostView, Observation

TICK = 5.0
MINUTE = 60.0
SPEC = JobSpec.from_json({"name": "train", "tpu": "v4-16", "command": ["x"]})
TOLD = JobSpec.from_json({"name": "train", "tpu": "v4-16", "command": ["x"], "max": {"stall": "10m"}})
STALL = float(SPEC.max.stall)
JOB = Job(
    *("train-1", "local", "team", "me", 0.0, {}),
    state=State.RUNNING,
    attempts=(Attempt(0, stage=0, origin=0, state=State.RUNNING, started=1.0),),
)


@dataclass(frozen=True)
class Part:
    """What a host does for some minutes."""

    minutes: float
    every: float = 0.0  # seconds of a step; 0: it makes none
    cores: float = 0.02  # a host that waits for others
    saves: bool = False
    alive: bool = True  # its process is scheduled
    beats: bool = True  # it tells between steps that it lives


TRAIN = Part(20, every=2.0, cores=1.0)


class Program:
    """One host that goes through its parts, and what it last reported."""

    def __init__(self, name: str, parts: tuple[Part, ...], first: int | None = 0) -> None:
        self.name, self.parts = name, parts
        self.step, self.cpu, self.at, self.done = first, 0.0, 0.0, 0.0
        self.beat, self.told, self.moved, self.saves = 0.0, 0.0, 0.0, False

    def part(self) -> Part:
        until = 0.0
        for part in self.parts:
            until += part.minutes * MINUTE
            if self.at < until:
                return part
        return self.parts[-1]

    def run(self, seconds: float) -> None:
        part = self.part()
        self.at += seconds
        self.cpu += seconds * part.cores * part.alive
        self.done = self.done + seconds / part.every if part.every else math.floor(self.done)
        if part.every and int(self.done) > (self.step or 0):
            self.step, self.moved, self.beat, self.saves = int(self.done), self.at, 0.0, False
        elif part.alive and part.beats and self.at - self.moved >= 10.0 and self.at - self.beat >= 10.0:
            self.beat, self.told, self.saves = self.at, self.cpu, part.saves

    def view(self, heard: float, wall: float) -> HostView:
        return HostView(
            *(self.name, 0, 0, "running"),
            step=self.step,
            moved=wall + self.moved,
            heard=heard,
            early=self.step is None,
            beat=self.beat,
            cpu=self.told,
            saves=self.saves,
        )


def judged(*programs: Program, minutes: float, spec: JobSpec = SPEC, sleep: float = 0.0, jump: float = 0.0):
    """Return (minute, host) of the decision that it hangs, or None.

    At half-time the driver sleeps, or its clock jumps.
    """
    liveness, heard, wall = Liveness(), 1000.0, 1e9
    for number in range(int(minutes * MINUTE / TICK)):
        seconds = TICK
        if number == int(minutes * MINUTE / TICK / 2):
            wall += jump
            seconds += sleep
            heard += sleep
        heard += TICK
        for one in programs:
            one.run(seconds)
        hosts = liveness.count("train-1", 0, [one.view(heard, wall) for one in programs])
        step = decide(JOB, spec, Observation(State.RUNNING, hosts, started=1.0, ran=heard), wall + heard)
        if step.act is Act.STOP:
            assert step.job.attempt.stopping is Reason.HANG
            return programs[0].at / MINUTE, step.job.attempt.host
    return None


def pair(*parts: Part, first: int | None = 0) -> tuple[Program, Program]:
    return Program("h0", parts, first), Program("h1", parts, first)


COMPILES = Part(20, cores=3.0)
SAVES = Part(20, cores=0.05, saves=True)
WAITS = Part(999)
HEALTHY = {
    "compiles for 20 minutes before its first step": pair(COMPILES, TRAIN, first=None),
    "compiles for 20 minutes in the middle": pair(TRAIN, COMPILES, TRAIN),
    "one host compiles for 20 minutes and the other waits": (
        Program("h0", (TRAIN, COMPILES, TRAIN)),
        Program("h1", (TRAIN, Part(20), TRAIN)),
    ),
    "saves for 20 minutes to a slow bucket": pair(TRAIN, SAVES, TRAIN),
    "restores for 20 minutes before its first step": pair(SAVES, TRAIN, first=None),
    "slow input, a step in 9 minutes": pair(TRAIN, Part(90, every=9 * MINUTE, cores=0.1)),
    "one slow host, the other waits for it in each step": (
        Program("h0", (TRAIN, Part(60, every=4 * MINUTE, cores=1.0))),
        Program("h1", (TRAIN, Part(60, every=4 * MINUTE, cores=0.02))),
    ),
}
HUNG = {
    "deadlocked collective": (pair(TRAIN, WAITS), 20 + 10),
    "deadlocked collective after a compilation": (pair(TRAIN, COMPILES, WAITS), 20 + 20 + 10),
    "program without signs of life": (pair(Part(20, every=2.0), Part(999, cores=3.0, beats=False)), 20 + 10),
    "both hosts are stopped while they compile": (
        pair(TRAIN, COMPILES, Part(999, cores=3.0, alive=False)),
        20 + 20 + 10 + FROZEN_SECONDS / MINUTE,
    ),
    "spins for ever": (pair(TRAIN, Part(999, cores=1.0)), 20 + 10 + EXCUSED_MOST / MINUTE),
}


@pytest.mark.parametrize("name", HEALTHY)
@pytest.mark.parametrize("more", [{}, {"jump": 86_400.0}, {"jump": -86_400.0}, {"sleep": 7200.0}], ids=str)
def test_healthy_program_is_not_called_hung_also_when_clocks_jump_or_the_driver_sleeps(name, more):
    fresh = [Program(one.name, one.parts, one.step) for one in HEALTHY[name]]
    assert judged(*fresh, minutes=90, **more) is None


@pytest.mark.parametrize("name", HUNG)
@pytest.mark.parametrize("jump", [0.0, 86_400.0, -86_400.0])
def test_hung_program_is_found_when_its_patience_is_over(name, jump):
    programs, expected = HUNG[name]
    fresh = [Program(one.name, one.parts, one.step) for one in programs]
    minute, _ = judged(*fresh, minutes=expected + 10, jump=jump)
    assert minute == pytest.approx(expected, abs=0.6)


def test_frozen_host_is_blamed_although_its_peer_spins_in_the_collective():
    stopped = Program("h1", (TRAIN, Part(999, alive=False)))
    spins = Program("h0", (TRAIN, Part(999, cores=1.0)))
    minute, host = judged(spins, stopped, minutes=40)
    assert host == "h1"
    assert minute == pytest.approx(20 + 10 + FROZEN_SECONDS / MINUTE, abs=0.6)


def test_max_stall_of_the_job_file_excuses_nothing():
    minute, _ = judged(*pair(TRAIN, COMPILES, TRAIN), minutes=60, spec=TOLD)
    assert minute == pytest.approx(30, abs=0.3)


SIGNS = st.tuples(st.integers(0, 2), st.floats(0, 1e6), st.floats(0, 1e6), st.booleans(), st.floats(0, 60))


@given(st.lists(st.lists(SIGNS, min_size=2, max_size=2), max_size=30))
def test_excused_time_is_never_more_than_the_silence(rounds):
    liveness, heard = Liveness(), 0.0
    for signs in rounds:
        heard += max(passed for *_, passed in signs)
        hosts = [
            HostView(f"h{index}", 0, index, "running", step=step, heard=heard, beat=beat, cpu=cpu, saves=saves)
            for index, (step, beat, cpu, saves, _) in enumerate(signs)
        ]
        for host in liveness.count("j", 0, hosts):
            assert 0.0 <= host.excused <= host.idle <= heard
            assert host.idle <= MOST_AT_ONCE * len(rounds)
