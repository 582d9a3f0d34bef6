"""Weeks of a shared cluster in simulated time: 4 teams send jobs, whose durations nothing but this file knows.

    python tests/support/queue_weeks.py [SEEDS]

It prints how many jobs started within the range that was predicted when they were sent.
"""

from __future__ import annotations

import heapq
import math
import random
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from tpukit.teams.forecast.durations import Durations, Like, Ran
from tpukit.teams.forecast.line import Entry, Line, Queue
from tpukit.teams.forecast.predict import Arrivals, Start, predict
from tpukit.teams.forecast.reading import Picture, Seen

CHIPS = ("v4-2x2x2", "google.com/tpu")
TEAMS = ("red", "blue", "green", "common")
WINDOW = 7 * 86_400.0
SKIPPED = 40
"""First jobs, which are not predicted: there is no history yet."""


@dataclass(frozen=True, slots=True)
class Sent:
    at: float
    entry: Entry
    like: Like
    seconds: float


@dataclass(frozen=True, slots=True)
class Scored:
    id: str
    start: Start
    at: float  # when it was predicted
    actual: float

    @property
    def is_held(self) -> bool:
        return self.start.holds(self.actual)

    @property
    def waited(self) -> bool:
        return self.actual > self.at


def queues() -> dict[str, Queue]:
    own = {"red": 16.0, "blue": 16.0, "green": 8.0, "common": 24.0}
    return {
        name: Queue(name, "tpu", {CHIPS: chips}, {CHIPS: math.inf if name != "green" else chips + 8})
        for name, chips in own.items()
    }


def weeks(seed: int, jobs: int = 200) -> list[Sent]:
    """Return jobs of 4 teams, each with programs of its own, over some weeks."""
    dice = random.Random(seed)
    programs = [
        (team, f"{team}-{number}", dice.uniform(6.5, 10.5), dice.uniform(0.2, 0.8), dice.choice([8.0, 8.0, 16.0]))
        for team in TEAMS
        for number in range(3)
    ]
    found, at = [], 0.0
    for number in range(jobs):
        at += dice.expovariate(1 / 2200)
        team, name, mean, spread, chips = dice.choice(programs)
        priority = dice.choices((0, 1000, -1000), (8, 1, 2))[0]
        entry = Entry(f"{team}/{name}-{number}", team, {CHIPS: chips}, priority, at)
        like = Like(team, name, f"{chips / 8:.0f} × v4-16")
        found.append(Sent(at, entry, like, math.exp(dice.gauss(mean, spread))))
    return found


def lived(sent: Sequence[Sent], samples: int, every: int = 1) -> list[Scored]:
    """Run the jobs, predict the start of every `every`th one when it is sent, and return the predictions."""
    line, likes = Line(queues()), {one.entry.id: one.like for one in sent}
    left = {one.entry.id: one.seconds for one in sent}
    admitted: dict[str, float] = {}
    held: dict[str, float] = {}
    started: dict[str, float] = {}
    due: dict[str, float] = {}
    ran: list[Ran] = []
    predicted: dict[str, tuple[float, Start]] = {}
    ends: list[tuple[float, str]] = []

    def settle(now: float) -> None:
        for change in line.settle(now):
            name = change.entry.id
            if change.by:
                left[name] = due.pop(name) - now
                held[name] = held.get(name, 0.0) + now - admitted.pop(name)
            else:
                admitted[name] = now
                started.setdefault(name, now)
                due[name] = now + left[name]
                heapq.heappush(ends, (due[name], name))

    def end_until(now: float) -> None:
        while ends and ends[0][0] <= now:
            at, name = heapq.heappop(ends)
            if due.get(name) == at:
                line.end(name)
                del due[name]
                ran.append(Ran(likes[name], held.get(name, 0.0) + at - admitted.pop(name)))
                settle(at)

    for number, one in enumerate(sent):
        end_until(one.at)
        line.wait(one.entry)
        if number >= SKIPPED and number % every == 0:
            recent = [past for past in sent[:number] if past.at >= one.at - WINDOW]
            arrivals = Arrivals([(past.entry, past.like) for past in recent], min(WINDOW, one.at))
            jobs = {
                **{name: Seen(entry, likes[name], admitted[name]) for name, entry in line.running.items()},
                **{entry.id: Seen(entry, likes[entry.id]) for entry in line.waiting},
            }
            elapsed = {name: held.get(name, 0.0) + one.at - admitted[name] for name in line.running}
            found = predict(
                *(Picture(queues(), jobs), Durations(ran), one.at), arrivals=arrivals, elapsed=elapsed, samples=samples
            )
            predicted[one.entry.id] = one.at, found.starts[one.entry.id]
        settle(one.at)
    end_until(math.inf)
    return [Scored(name, start, at, started[name]) for name, (at, start) in predicted.items()]


def share(scored: Sequence[Scored]) -> float:
    return sum(one.is_held for one in scored) / len(scored)


if __name__ == "__main__":
    every: list[Scored] = []
    for seed in range(int(sys.argv[1]) if len(sys.argv) > 1 else 20):
        found = lived(weeks(seed), samples=40)
        every += found
        waited = [one for one in found if one.waited]
        print(f"seed {seed}: {share(found):.3f} of {len(found)}, {share(waited):.3f} of {len(waited)} that waited")
    waited = [one for one in every if one.waited]
    print(f"all: {share(every):.3f} of {len(every)}, {share(waited):.3f} of {len(waited)} that waited")
