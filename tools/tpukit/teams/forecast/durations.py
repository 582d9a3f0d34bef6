"""Durations for which jobs hold their slices, from those that ended. Pure.

Durations are drawn from the most similar jobs of which enough have ended, and spread by a kernel on a logarithmic
scale. Each simulation draws a sample of its own from them, so that a range from few jobs is wide.
"""

from __future__ import annotations

import math
import random
import re
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit import catalogue
from tpukit.core.errors import TpukitError
from tpukit.goodput import sums
from tpukit.goodput.causes import Cause
from tpukit.jobs.records import Job
from tpukit.jobs.render import pool_kinds
from tpukit.jobs.render.node_labels import RESERVED
from tpukit.jobs.render.pool_kinds import PoolKind

LEAST = 5
"""Ended jobs of a kind that are enough to draw from them alone."""
SHORTEST, LONGEST = 60.0, 3 * 86_400.0
"""Range of durations, drawn evenly on a logarithmic scale, while no job has ended."""
NARROWEST = 0.15
"""Least width of the kernel, on the logarithmic scale."""
TRIES = 30


@dataclass(frozen=True, slots=True)
class Like:
    """Traits by which jobs are similar."""

    team: str
    name: str
    tpu: str  # 2 × v4-16

    @property
    def levels(self) -> tuple[tuple[str, ...], ...]:
        """Groups that it belongs to, the most similar first."""
        stem = re.sub(r"[-_.]?\d+$", "", re.sub(r"-[a-z0-9]{5}$", "", self.name))
        return (self.team, stem, self.tpu), (self.team, self.tpu), (self.tpu,), ()


@dataclass(frozen=True, slots=True)
class Ran:
    like: Like
    seconds: float


class Durations:
    def __init__(self, ran: Iterable[Ran]) -> None:
        self._groups: dict[tuple[str, ...], list[float]] = {}
        for one in ran:
            if one.seconds > 0:
                for level in one.like.levels:
                    self._groups.setdefault(level, []).append(math.log(one.seconds))

    def known(self, like: Like) -> int:
        """Return the number of ended jobs that durations of this kind are drawn from."""
        return len(self._group(like))

    def drawn(self, dice: random.Random) -> Draw:
        return Draw(self, dice)

    def _group(self, like: Like) -> Sequence[float]:
        found: Sequence[float] = ()
        for level in like.levels:
            group = self._groups.get(level, ())
            if len(group) >= LEAST:
                return group
            found = found or group
        return found


class Draw:
    """Durations for one simulation."""

    def __init__(self, of: Durations, dice: random.Random) -> None:
        self._of, self._dice = of, dice
        self._samples: dict[Like, tuple[list[float], float]] = {}

    def remaining(self, like: Like, elapsed: float = 0.0, limit: float = math.inf) -> float:
        """Return for how much longer a job holds its slices that has held them for `elapsed` seconds."""
        samples, width = self._sample(like)
        for _ in range(TRIES):
            drawn = math.exp(self._dice.choice(samples) + self._dice.gauss(0, width)) if samples else self._any()
            if drawn > elapsed:
                return min(drawn, limit) - elapsed if limit > elapsed else 0.0
        # Longer than all jobs like it: the longer it has run, the longer it will.
        return min(elapsed / self._dice.uniform(0.1, 1.0), max(limit, elapsed)) - elapsed

    def _any(self) -> float:
        return math.exp(self._dice.uniform(math.log(SHORTEST), math.log(LONGEST)))

    def _sample(self, like: Like) -> tuple[list[float], float]:
        if like not in self._samples:
            group = self._of._group(like)
            again = self._dice.choices(group, k=len(group)) if group else []
            spread = statistics.stdev(group) if len(group) > 1 else 1.0
            self._samples[like] = again, max(NARROWEST, 1.06 * spread * len(group) ** -0.2 if group else 0.0)
        return self._samples[like]


def of_jobs(jobs: Iterable[Job], now: float) -> list[Ran]:
    """Return for how long ended jobs held their slices, from when they were admitted."""
    return [Ran(like(job), held(job, now)) for job in jobs if job.state.ended]


def held(job: Job, now: float) -> float:
    spent = sums.of_job(job, now).spent
    return (sum(spent.values()) - spent.get(Cause.WAITING, 0)) / 1000


def like(job: Job) -> Like:
    return Like(job.team, job.id, tpu(job.plan))


def tpu(plan: Mapping[str, Any]) -> str:
    """Return the slices of a job as the queues name them: `2 × v4-16:spot`."""
    kind = kind_of(plan)
    if kind is None:
        return "-"
    count = plan["spec"].get("slices", 1)
    return str(kind) if count == 1 else f"{count} × {kind}"


def kind_of(plan: Mapping[str, Any]) -> PoolKind | None:
    """Return the kind of slices of a job; None if its plan, which another version may have written, is not readable."""
    try:
        spec = plan["spec"]
        capacity = spec.get("capacity", pool_kinds.ON_DEMAND)
        word = capacity if isinstance(capacity, str) else f"{RESERVED}{capacity['reservation']}"
        if not isinstance(spec.get("slices", 1), int):
            return None
        return PoolKind(catalogue.find(str(plan["slice"]["name"])), word)
    except (TpukitError, AttributeError, KeyError, TypeError):
        return None
