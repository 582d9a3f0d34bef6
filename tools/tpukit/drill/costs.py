"""Estimate the cost of losses on the job's slices, and the best interval between saves. Pure.

The cheapest interval is Daly's first-order one, sqrt(2 x save x time between losses), after J. T. Daly, "A higher order
estimate of the optimum checkpoint interval for restart dumps", 2006: https://doi.org/10.1016/j.future.2004.11.016
Times are those of this machine: steps, saves and restarts take other times on TPUs.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from tpukit.drill.holding import Hold

HOURS_A_MONTH = 730.0
LEAST_GAIN = 0.001
"""Least share of all time that another interval must save to be reported."""


@dataclass(frozen=True, slots=True)
class Costs:
    step_seconds: float | None = None
    save_seconds: float | None = None  # from the first file to the last
    save_bytes: int | None = None
    held_seconds: float | None = None  # seconds that a save blocks training
    held_error: float | None = None
    save_every: float | None = None  # current seconds between saves
    back_seconds: float | None = None  # from a loss to the next new step
    losses_per_day: float = 0.0
    usd_per_hour: float | None = None  # of the job's slices; None: unknown
    price_note: str = ""
    share_lost: float | None = None  # of all time, at that rate
    usd_lost_per_month: float | None = None
    best_every: float | None = None  # cheapest seconds between saves; None: not measurable
    best_error: float | None = None
    best_steps: int | None = None


def estimate(
    *,
    hold: Hold,
    save_seconds: Sequence[float],
    save_bytes: int | None,
    save_every: float | None,
    back: Sequence[float],
    losses_per_day: float,
    usd_per_hour: float | None,
    price_note: str = "",
) -> Costs:
    back_seconds = median(back) if back else None
    held = hold.seconds if hold.is_measured else None
    between = 86400.0 / losses_per_day if losses_per_day > 0 else math.inf
    share = None
    if back_seconds is not None:
        # Repeated steps are lost time too; they are part of the time until the next new step.
        share = back_seconds / between + (held / save_every if held and save_every else 0.0)
    best = _best(held, hold.error, between, save_every)
    return Costs(
        hold.step_seconds,
        median(save_seconds) if save_seconds else None,
        save_bytes,
        held,
        hold.error if held is not None else None,
        save_every,
        back_seconds,
        losses_per_day,
        usd_per_hour,
        price_note,
        share,
        usd_per_hour * HOURS_A_MONTH * share if usd_per_hour is not None and share is not None else None,
        best,
        best * hold.error / held / 2.0 if best and held else None,
        max(1, round(best / hold.step_seconds)) if best and hold.step_seconds else None,
    )


def _best(held: float | None, error: float, between: float, every: float | None) -> float | None:
    """Return the cheapest interval; None if its gain is small, or smaller than its error."""
    if not held or not every or not math.isfinite(between):
        return None
    best = math.sqrt(2.0 * held * between)
    gain = held / every + every / 2.0 / between - (held / best + best / 2.0 / between)
    return best if gain > max(LEAST_GAIN, 2.0 * error * abs(1.0 / every - 1.0 / best)) else None
