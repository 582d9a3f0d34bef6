"""Predict when each waiting job starts: the queues in simulated time, many times. Pure.

Each simulation draws how much longer every job runs, and which jobs are sent meanwhile, as often as in the recent past.
"""

from __future__ import annotations

import heapq
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tpukit.teams.forecast.durations import Draw, Durations, Like
from tpukit.teams.forecast.line import Change, Entry, Line
from tpukit.teams.forecast.reading import Picture

SAMPLES = 100
HORIZON = 7 * 86_400.0
EVENTS_MOST = 5_000
"""Most ends and arrivals of one simulation. A job that has not started by then counts as later than the horizon."""
LOW, HIGH = 0.1, 0.9
"""The range that should hold in 80 % of cases."""


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Jobs that were sent in a window of the past, as a sample of those to come."""

    templates: Sequence[tuple[Entry, Like]] = ()
    seconds: float = 0.0  # length of the window

    @property
    def rate(self) -> float:
        return len(self.templates) / self.seconds if self.seconds > 0 else 0.0


@dataclass(frozen=True, slots=True)
class Start:
    """When a job starts, in seconds since the epoch; infinite: not within the horizon."""

    soonest: float
    likely: float
    latest: float
    alike: int  # ended jobs like it, of which durations are known

    def holds(self, at: float) -> bool:
        return self.soonest <= at <= self.latest


@dataclass(frozen=True, slots=True)
class Prediction:
    starts: Mapping[str, Start]
    now: Sequence[Change] = ()  # admissions and evictions that follow at once


@dataclass(slots=True)
class _Run:
    """One simulation."""

    line: Line
    draw: Draw
    dice: random.Random
    likes: dict[str, Like]
    limits: Mapping[str, float]
    ends: list[tuple[float, int, str]] = field(default_factory=list)
    versions: dict[str, int] = field(default_factory=dict)
    left: dict[str, float] = field(default_factory=dict)  # seconds of work of evicted jobs
    due: dict[str, float] = field(default_factory=dict)


def predict(
    picture: Picture,
    durations: Durations,
    now: float,
    *,
    arrivals: Arrivals | None = None,
    limits: Mapping[str, float] | None = None,
    elapsed: Mapping[str, float] | None = None,
    samples: int = SAMPLES,
    seed: int = 0,
) -> Prediction:
    """Return the start of each waiting job.

    `limits`: the longest time that a job may hold its slices. `elapsed`: how long it has held them, if known better
    than from its last admission.
    """
    first = picture.line()
    waiting = {entry.id for entry in first.waiting}
    at_once = first.copy().settle(now)
    found: dict[str, list[float]] = {name: [] for name in waiting}
    for number in range(samples if waiting else 0):
        dice = random.Random(seed * 1_000_003 + number)  # noqa: S311
        run = _Run(
            first.copy(),
            durations.drawn(dice),
            dice,
            {name: one.like for name, one in picture.jobs.items()},
            limits or {},
        )
        for name, entry in run.line.running.items():
            held = (elapsed or {}).get(name, now - picture.jobs[name].admitted)
            left = run.draw.remaining(run.likes[name], max(0.0, held), run.limits.get(name, math.inf))
            _begin(run, entry, now, left)
        for name, at in _starts(run, waiting, now, arrivals or Arrivals()).items():
            found[name].append(at)
    return Prediction(
        {
            name: Start(*_range(times), durations.known(picture.jobs[name].like))
            for name, times in found.items()
            if times
        },
        at_once,
    )


def _starts(run: _Run, waiting: set[str], now: float, arrivals: Arrivals) -> dict[str, float]:
    """Return when each job is first admitted."""
    found = dict.fromkeys(waiting, math.inf)
    missing = set(waiting)
    following, at = _next_arrival(run, now, arrivals), now
    changes = run.line.settle(at)
    for number in range(EVENTS_MOST):
        for change in changes:
            name = change.entry.id
            if change.by:
                run.left[name] = max(0.0, run.due.pop(name) - at)
                run.versions[name] = run.versions.get(name, 0) + 1
                continue
            if name in missing:
                missing.discard(name)
                found[name] = at
            _begin(run, change.entry, at, run.left.pop(name, None))
        if not missing:
            break
        upcoming = min(following, run.ends[0][0] if run.ends else math.inf)
        if upcoming > now + HORIZON:
            break
        at = upcoming
        if following <= at:
            template, like = run.dice.choice(arrivals.templates)
            name = f"{template.id}+{number}"
            run.likes[name] = like
            changes = run.line.arrive(Entry(name, template.queue, template.need, template.priority, at), at)
            following = _next_arrival(run, at, arrivals)
            continue
        _, version, name = heapq.heappop(run.ends)
        changes = []
        if version == run.versions.get(name, 0):
            run.line.end(name)
            run.due.pop(name, None)
            changes = run.line.settle(at)
    return found


def _begin(run: _Run, entry: Entry, at: float, left: float | None) -> None:
    """Note when a job ends that runs from now on."""
    if left is None:
        left = run.draw.remaining(run.likes[entry.id], 0.0, run.limits.get(entry.id, math.inf))
    run.due[entry.id] = at + left
    heapq.heappush(run.ends, (at + left, run.versions.get(entry.id, 0), entry.id))


def _next_arrival(run: _Run, at: float, arrivals: Arrivals) -> float:
    return at + run.dice.expovariate(arrivals.rate) if arrivals.rate else math.inf


def _range(times: list[float]) -> tuple[float, float, float]:
    ordered = sorted(times)
    last = len(ordered) - 1
    return (
        ordered[math.floor(LOW * last)],
        ordered[round(0.5 * last)],
        ordered[math.ceil(HIGH * last)],
    )
