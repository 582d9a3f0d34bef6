"""Ranges of starts in words."""

from __future__ import annotations

import math

from tpukit.core.quantities import duration
from tpukit.teams.forecast.predict import HORIZON, Start


def in_words(start: Start, now: float) -> str:
    """Return `now`, `in 5m to 2h`, `in 3h or later`, or `not within 7d`."""
    if start.latest <= now:
        return "now"
    if math.isinf(start.soonest):
        return f"not within {duration(HORIZON)}"
    first = f"in {duration(start.soonest - now)}" if start.soonest > now else "now"
    return f"{first} or later" if math.isinf(start.latest) else f"{first} to {duration(start.latest - now)}"
