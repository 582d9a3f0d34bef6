"""Limits of the runs of a drill, from its unbroken run. Pure."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from tpukit.drill.parts import Parts
from tpukit.drill.saves import Save
from tpukit.drill.trace import Trace


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits from the unbroken run, with a wide margin."""

    silence: float = 600.0  # seconds without any report before the drill gives up the run
    stall: int = 600  # seconds after which a host counts as hung
    saving_seconds: float = 0.0
    grace: float = 30.0  # seconds between SIGTERM and the kill
    bytes_most: int = 0
    ignore: frozenset[str] = frozenset()
    consists: Parts = field(default_factory=Parts)  # parts of a finished save
    first_save: int = -1  # its step in the unbroken run; -1: none
    last: int = -1  # last step of the unbroken run; -1: unknown
    unsaved: frozenset[int] = frozenset()  # reported steps in the middle between two saves


MIDDLE = 0.25, 0.75
"""Shares of the interval between two saves."""
GRACE_LEAST = 3.0
GRACE_SAVES, GRACE_STEPS = 5, 10


def measure(trace: Trace, saves: Sequence[Save], slowest_start: float, grace: float = 30.0) -> Limits:
    """Return the limits of broken runs, from the unbroken run and the job's grace.

    The drill gives less than the job's grace if a save needs less: otherwise a short job would finish within it, and a
    program that ignores SIGTERM would pass.
    """
    slowest_step = max(gaps(trace), default=0.0)
    done = [save for save in saves if save.done]
    seconds = sorted(save.seconds for save in done)[len(done) // 2] if done else 0.0
    return Limits(
        silence=60.0 + 10.0 * max(slowest_start, slowest_step),  # the machine may be busier than in the unbroken run
        stall=math.ceil(2.0 + 4.0 * (slowest_step or 1.0)),
        saving_seconds=seconds,
        grace=min(grace, max(GRACE_LEAST, GRACE_SAVES * seconds, GRACE_STEPS * slowest_step)),
    )


def unsaved(steps: Sequence[int], saves: Sequence[int]) -> frozenset[int]:
    """Return the reported steps at which work since the last save is unsaved, and the next save does not begin soon."""
    found = set[int]()
    for begin, end in pairwise(sorted({*saves, *steps[-1:]})):
        found |= {step for step in steps if MIDDLE[0] <= (step - begin) / (end - begin) <= MIDDLE[1]}
    return frozenset(found)


def gaps(trace: Trace) -> list[float]:
    """Return the seconds between consecutive reports."""
    times = sorted(report.at for report in trace)
    return [later - earlier for earlier, later in pairwise(times)]
