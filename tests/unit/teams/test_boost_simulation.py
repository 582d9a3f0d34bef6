"""Fifty jobs of three priorities under random reclaims, in a model of how Kueue 0.19 orders and evicts jobs.

Victims are ordered as in pkg/scheduler/preemption/common/ordering.go: lowest effective priority first, then the newest.
The model evicts within one queue, and on a reclaim whatever the priority.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from statistics import mean

import pytest

from tpukit.goodput.eviction import Exposure, costs
from tpukit.jobs.render.kueue import PRIORITIES
from tpukit.teams import boosts

CLASSES = [one.value for one in PRIORITIES]
TICK, STARTS = 300.0, 300.0
SLICES, CHIPS = 24, 16


@dataclass(eq=False)
class Job:
    number: int
    priority: int
    slices: int
    work: float  # seconds
    saves: float  # seconds between two saves; 0: it shows none, and saves every hour
    arrives: float
    done: float = 0.0
    saved: float = 0.0
    started: float = -1.0
    boost: int | None = None
    written: float = 0.0
    lost: float = 0.0
    evicted: int = 0
    ended: float = 0.0

    @property
    def effective(self) -> int:
        return self.priority + (self.boost or 0)


@dataclass
class Queue:
    weighs: bool
    jobs: list[Job]
    reclaims: dict[int, int]  # slices that are taken back, by tick
    now: float = 0.0
    taken: list[tuple[float, int]] = field(default_factory=list)  # until when, and how many slices
    inverted: int = 0

    def running(self) -> list[Job]:
        return [one for one in self.jobs if one.started >= 0 and not one.ended]

    def free(self) -> int:
        held = sum(count for until, count in self.taken if until > self.now)
        return SLICES - held - sum(one.slices for one in self.running())

    def tick(self) -> None:
        self.now += TICK
        for one in self.running():
            self.train(one)
        if self.weighs:
            self.weigh()
        if count := self.reclaims.get(round(self.now / TICK)):
            self.taken.append((self.now + 6 * TICK, count))
            self.make_room(0, self.running())
        waiting = [one for one in self.jobs if one.arrives <= self.now and one.started < 0 and not one.ended]
        for one in sorted(waiting, key=lambda job: (-job.effective, job.arrives)):
            if one.slices > self.free():
                lower = [other for other in self.running() if other.effective < one.effective]
                if one.slices > self.free() + sum(other.slices for other in lower):
                    continue
                self.inverted += sum(other.priority >= one.priority for other in self.make_room(one.slices, lower))
            one.started = self.now

    def make_room(self, need: int, candidates: list[Job]) -> list[Job]:
        victims: list[Job] = []
        for one in sorted(candidates, key=lambda job: (job.effective, -job.started)):
            if self.free() >= need:
                break
            victims.append(one)
            one.lost += one.done - one.saved
            one.done, one.started, one.boost, one.evicted = one.saved, -1.0, None, one.evicted + 1
        return victims

    def train(self, one: Job) -> None:
        if self.now - one.started <= STARTS:
            return
        one.done = min(one.work, one.done + TICK)
        if one.done - one.saved >= (one.saves or 3600.0):
            one.saved = one.done
        if one.done >= one.work:
            one.ended = self.now

    def weigh(self) -> None:
        running = {str(one.number): one for one in self.running()}
        shown = {
            name: Exposure(
                ran=self.now - one.started,
                unsaved=one.done - one.saved if one.saves and one.saved else None,
                starting=STARTS,
                chips=one.slices * CHIPS,
                usd_per_hour=one.slices * CHIPS * 3.0,
            )
            for name, one in running.items()
        }
        for name, cost in costs(shown).items():
            one, most = running[name], boosts.room(running[name].priority, CLASSES)
            value = boosts.boost(cost.usd, most)
            if self.now - one.written >= boosts.PACE_SECONDS and boosts.is_due(one.boost, value, most):
                one.boost, one.written = value, self.now


def simulate(seed: int, *, weighs: bool) -> Queue:
    dice = random.Random(seed)
    jobs = [
        Job(
            number,
            dice.choice(CLASSES),
            dice.choice((1, 1, 2, 4)),
            work=dice.uniform(1, 5) * 3600.0,
            saves=dice.choice((0.0, 300.0, 900.0, 1800.0, 3600.0)),
            arrives=dice.uniform(0, 4 * 3600.0),
        )
        for number in range(50)
    ]
    reclaims = {dice.randrange(600): dice.choice((1, 2, 4)) for _ in range(150)}
    queue = Queue(weighs, jobs, reclaims)
    while not all(one.ended for one in jobs) and queue.now < 50 * 3600.0:
        queue.tick()
    return queue


@pytest.fixture(scope="module")
def both() -> list[tuple[Queue, Queue]]:
    return [(simulate(seed, weighs=True), simulate(seed, weighs=False)) for seed in range(10)]


def chip_hours(queue: Queue) -> float:
    return sum(one.lost * one.slices * CHIPS / 3600.0 for one in queue.jobs)


def test_less_work_is_lost_with_the_boost_than_without(both):
    ratio = mean(chip_hours(with_boost) / chip_hours(without) for with_boost, without in both)
    assert ratio < 0.85


def test_no_priority_is_inverted_and_no_job_starves(both):
    for with_boost, without in both:
        assert (with_boost.inverted, without.inverted) == (0, 0)
        assert all(one.ended for one in with_boost.jobs)
        last = max(one.ended for one in without.jobs)
        assert max(one.ended for one in with_boost.jobs) <= 1.2 * last


def test_silent_jobs_lose_no_larger_share_of_their_work_than_without_the_boost(both):
    def share(queues: list[Queue]) -> float:
        silent = [one for queue in queues for one in queue.jobs if not one.saves]
        return sum(one.evicted for one in silent) / len(silent)

    assert share([one for one, _ in both]) <= 1.25 * share([one for _, one in both])
