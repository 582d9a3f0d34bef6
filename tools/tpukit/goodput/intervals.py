"""Estimate the cost of another checkpoint interval, capacity or zone. Pure.

The share of time that saves and losses cost is, to the first order, save / interval + rate x interval / 2. It is least
at Young's interval, sqrt(2 x save / rate): J. W. Young, "A first order approximation to the optimum checkpoint
interval", 1974, https://doi.org/10.1145/361147.361115; J. T. Daly, 2006,
https://doi.org/10.1016/j.future.2004.11.016. Save time and loss rate are measured, so each has an error. Advice that
could be noise is not given.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from tpukit.goodput.causes import UNBILLED
from tpukit.goodput.measures import Measured
from tpukit.goodput.money import HOUR_MS
from tpukit.goodput.sums import Goodput

LEAST_GAIN = 0.001
"""Least share of the time that another interval must save to be reported."""
ERRORS = 2.0
"""Standard errors that an effect must exceed."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Another checkpoint interval, and its saving."""

    now: float  # seconds between saves as measured
    best: float
    gain: float  # share of the running time
    error: float  # of that share, one standard error
    usd: float | None = None  # of the bill so far


@dataclass(frozen=True, slots=True)
class Choice:
    """Another zone or capacity for the same steps."""

    zone: str
    capacity: str
    usd: float
    note: str = ""


def interval(measured: Measured, cost: float | None = None) -> Interval | None:
    """Return the cheapest interval; None without measurements, or if the gain is small or within their error."""
    save, error, every, rate = measured.save_seconds, measured.save_error, measured.save_every, measured.loss_rate
    if not save or save <= 0 or error is None or not every or not rate:
        return None
    best = math.sqrt(2.0 * save / rate)
    gain = _share(save, rate, every) - _share(save, rate, best)
    of_save = (1.0 / every - math.sqrt(rate / (2.0 * save))) * error
    of_rate = (every / 2.0 - math.sqrt(save / (2.0 * rate))) * rate / math.sqrt(measured.losses)
    bar = math.hypot(of_save, of_rate)
    if gain <= max(LEAST_GAIN, ERRORS * bar):
        return None
    return Interval(every, best, gain, bar, None if cost is None else cost * gain)


def choices(
    goodput: Goodput, rates: Mapping[tuple[str, str], float], zone: str, capacity: str, most: int = 3
) -> list[Choice]:
    """Return the zones and capacities where the same steps would have cost less, cheapest first.

    Another zone is billed for the same hours at its price, because its losses are unknown. On demand is billed without
    the time lost to preemption. A job without preemptible capacity gets no estimate for it: its losses are unknown.
    """
    billed = sum(amount for cause, amount in goodput.spent.items() if cause not in UNBILLED)
    here = rates.get((zone, capacity))
    if here is None or not billed:
        return []
    spared = min(billed, int(goodput.measured.back * 1000))
    found = []
    for (where, kind), rate in rates.items():
        if (where, kind) == (zone, capacity):
            continue
        if kind == capacity:
            found.append(Choice(where, kind, billed / HOUR_MS * rate, "if it lost as much there"))
        elif kind == "on-demand" and goodput.measured.losses:
            found.append(Choice(where, kind, (billed - spared) / HOUR_MS * rate, "without the losses"))
    cheaper = [one for one in found if one.usd < billed / HOUR_MS * here]
    return sorted(cheaper, key=lambda one: one.usd)[:most]


def _share(save: float, rate: float, every: float) -> float:
    return save / every + rate * every / 2.0
