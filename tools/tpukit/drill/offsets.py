"""Which batches a resumed run was given, compared with the unbroken one. Pure.

Digests of batches say it outright. Without them the shape of the loss does: what is left of it when its trend is taken
away belongs to the batch, and where that fits best tells the shift.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

LEAST_POINTS = 8
LEAST_FIT, LIKELY_FIT = 0.8, 0.7
"""Correlation from which a shift is believed: any, and one that a common mistake makes."""
LEAST_LEAD = 0.1
"""By how much any other must fit better than all that are not beside it."""
_SMOOTH = (-2, 3, 6, 7, 6, 3, -2)
"""Savitzky and Golay's weights for a quadratic over seven points: https://doi.org/10.1021/ac60214a047. A moving average
would leave the bend of a falling loss in what is taken for the batch's share."""


@dataclass(frozen=True, slots=True)
class Shift:
    """Step s had the batch of step s - by; positive: batches came again; negative: some were passed over."""

    by: int
    fit: float  # 1.0: by digests
    points: int


def by_digest(unbroken: Mapping[int, str], resumed: Mapping[int, str]) -> Shift | None:
    """The shift that explains most of the steps, and at least nine in ten. None: none does, or too little is known."""
    steps = [step for step in resumed if resumed[step]]
    where: dict[str, list[int]] = {}
    for step, digest in unbroken.items():
        where.setdefault(digest, []).append(step)
    counts: dict[int, int] = {}
    for step in steps:
        for same in where.get(resumed[step], ()):
            counts[step - same] = counts.get(step - same, 0) + 1
    if not counts:
        return None
    best = max(counts, key=lambda by: (counts[by], -abs(by)))
    inside = [step for step in steps if step - best in unbroken]
    return Shift(best, 1.0, counts[best]) if counts[best] >= max(1, 0.9 * len(inside)) else None


def by_loss(unbroken: Mapping[int, float], resumed: Mapping[int, float], likely: Collection[int] = ()) -> Shift | None:
    """The shift at which the losses fit best, where one stands out or is `likely` beforehand."""
    reference, left = _residuals(unbroken), _residuals(resumed)
    if len(left) < LEAST_POINTS or len(reference) < LEAST_POINTS:
        return None
    fits: dict[int, tuple[float, int]] = {}
    for by in range(min(left) - max(reference), max(left) - min(reference) + 1):
        pairs = [(value, reference[step - by]) for step, value in left.items() if step - by in reference]
        if len(pairs) >= max(LEAST_POINTS, len(left) // 2):
            fits[by] = (_correlation(pairs), len(pairs))
    if not fits:
        return None
    best = max(fits, key=lambda by: fits[by][0])
    fit, points = fits[best]
    rival = max((fits[by][0] for by in fits if abs(by - best) > 1), default=0.0)
    believed = fit >= LIKELY_FIT if best in likely else fit >= LEAST_FIT and fit - rival >= LEAST_LEAD
    return Shift(best, fit, points) if believed else None


def equal_shift(unbroken: Mapping[int, float], resumed: Mapping[int, float], tolerance: float) -> int | None:
    """The shift, other than none, at which every loss is that of the unbroken run: only the count of steps differs."""
    steps = sorted(resumed)
    if len(steps) < 3 or len(set(resumed.values())) < 3:
        return None
    for by in sorted(range(-len(unbroken), len(unbroken) + 1), key=abs):
        inside = [step for step in steps if step - by in unbroken]
        if (
            by
            and len(inside) >= max(3, len(steps) // 2)
            and all(apart(resumed[step], unbroken[step - by]) <= tolerance for step in inside)
        ):
            return by
    return None


def apart(one: float, other: float) -> float:
    """How far two losses differ, as a share of the larger."""
    if one == other:
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other), 1e-12)


def _residuals(losses: Mapping[int, float]) -> dict[int, float]:
    """What is left of each loss without its trend. The first and last three have too few neighbours."""
    half, total = len(_SMOOTH) // 2, sum(_SMOOTH)
    left = {}
    for step in losses:
        around = [losses.get(step + by) for by in range(-half, half + 1)]
        if None not in around:
            trend = sum(weight * (value or 0.0) for weight, value in zip(_SMOOTH, around, strict=True)) / total
            left[step] = losses[step] - trend
    return left


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    count = len(pairs)
    one, other = sum(a for a, _ in pairs) / count, sum(b for _, b in pairs) / count
    both = sum((a - one) * (b - other) for a, b in pairs)
    spread = math.sqrt(sum((a - one) ** 2 for a, _ in pairs) * sum((b - other) ** 2 for _, b in pairs))
    return both / spread if spread > 1e-300 and math.isfinite(spread) else 0.0
