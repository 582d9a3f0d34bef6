"""What losses cost on the job's slices, and how often it pays to save. Pure.

The interval that costs least is Daly's first-order one, sqrt(2 x save x time between losses), after J. T. Daly, "A
higher order estimate of the optimum checkpoint interval for restart dumps", 2006:
https://doi.org/10.1016/j.future.2004.11.016
Times are those of this machine: on TPUs steps, saves and restarts take others.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median


@dataclass(frozen=True, slots=True)
class Costs:
    step_seconds: float | None = None
    save_seconds: float | None = None  # from the first file to the last
    save_bytes: int | None = None
    held_seconds: float | None = None  # for which a save keeps the next step waiting
    save_every: float | None = None  # seconds between saves, as it is
    back_seconds: float | None = None  # from a loss to the next new step
    losses_per_day: float = 0.0
    usd_per_hour: float | None = None  # of the job's slices; None: no price is known
    price_note: str = ""
    share_lost: float | None = None  # of all time, at that rate
    usd_lost_per_hour: float | None = None
    best_every: float | None = None  # seconds between saves that cost least
    best_steps: int | None = None


def estimate(
    *,
    step_seconds: float | None,
    save_seconds: Sequence[float],
    save_bytes: int | None,
    held: Sequence[float],
    save_every: float | None,
    back: Sequence[float],
    losses_per_day: float,
    usd_per_hour: float | None,
    price_note: str = "",
) -> Costs:
    back_seconds = median(back) if back else None
    held_seconds = max(0.0, median(held)) if held else None
    hold = held_seconds if held_seconds else (median(save_seconds) if save_seconds else None)
    between = 86400.0 / losses_per_day if losses_per_day > 0 else math.inf
    share = None
    if back_seconds is not None:
        # What is done again was lost too, and is part of the time until the next new step.
        share = back_seconds / between + (hold / save_every if hold and save_every else 0.0)
    best = math.sqrt(2.0 * hold * between) if hold and math.isfinite(between) else None
    return Costs(
        step_seconds,
        median(save_seconds) if save_seconds else None,
        save_bytes,
        held_seconds,
        save_every,
        back_seconds,
        losses_per_day,
        usd_per_hour,
        price_note,
        share,
        usd_per_hour * share if usd_per_hour is not None and share is not None else None,
        best,
        max(1, round(best / step_seconds)) if best and step_seconds else None,
    )
