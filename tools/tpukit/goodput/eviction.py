"""The price of taking a running job's slices away: the work since its last save, and starting again. Pure.

A program that publishes no saves is assumed to have saved as recently as the median program that does, or at its start
if that was later. Without this rule, a job would be protected from eviction by hiding its saves
(https://github.com/kubernetes-sigs/kueue/issues/477).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from statistics import median

from tpukit.jobs.records import Marks

CHIP_HOUR_USD = 1.0
"""Price of a chip for an hour where no list price is known. It only compares jobs with each other."""


@dataclass(frozen=True, slots=True)
class Exposure:
    """The work of a running job that an eviction would repeat, as far as the job shows it."""

    ran: float  # seconds since all its hosts ran
    unsaved: float | None  # seconds of work since its last save; None: no save was seen
    starting: float | None  # seconds from its slices to its first step; None: no step was seen
    chips: int
    usd_per_hour: float | None  # of all its slices; None: no price is known


@dataclass(frozen=True, slots=True)
class EvictionCost:
    """The cost of evicting a job now."""

    usd: float
    unsaved: float  # seconds of work that would be repeated, in part assumed if the job shows no saves
    starting: float  # seconds until it is where it was before


def unsaved(step: int | None, saved: int, marks: Marks, moved: float, steps_per_s: float | None) -> float | None:
    """Return the seconds of work after the last saved step, at the pace of this attempt; None before any save."""
    if saved < 0:
        return None
    if step is None or step <= saved:
        return 0.0
    done, took = step - marks.first, moved - marks.stepped
    if marks.stepped and done > 0 and took > 0:
        return (step - saved) * took / done
    if steps_per_s and math.isfinite(steps_per_s) and steps_per_s > 0:
        return (step - saved) / steps_per_s
    return None


def starting(marks: Marks) -> float | None:
    """Return the seconds that the attempt needed from its slices to its first step; None before that step."""
    took = marks.stepped - marks.placed
    return took if marks.stepped and marks.placed and took >= 0 else None


def costs(exposures: Mapping[str, Exposure]) -> dict[str, EvictionCost]:
    """Return the cost of evicting each job. A job that shows nothing is judged by the medians of the others."""
    shown = [_unsaved(one) for one in exposures.values() if one.unsaved is not None]
    starts = [one.starting for one in exposures.values() if one.starting is not None]
    known, again = median(shown) if shown else math.inf, median(starts) if starts else 0.0
    return {name: _cost(one, known, again) for name, one in exposures.items()}


def _unsaved(one: Exposure) -> float:
    """Return the shown loss, which cannot exceed the time that the attempt ran."""
    return min(max(0.0, one.unsaved or 0.0), max(0.0, one.ran))


def _cost(one: Exposure, of_others: float, again: float) -> EvictionCost:
    lost = _unsaved(one) if one.unsaved is not None else min(max(0.0, one.ran), of_others)
    back = max(0.0, one.starting) if one.starting is not None else again
    rate = one.usd_per_hour if one.usd_per_hour else one.chips * CHIP_HOUR_USD
    return EvictionCost((lost + back) / 3600.0 * rate, lost, back)
