"""Find which batches a resumed run got, compared with the unbroken one. Pure.

Digests of batches show it directly. Without them, the shape of the loss does: the loss minus its trend depends on the
batch, and the shift with the best fit is the answer.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

LEAST_POINTS = 8
CHANCE = 0.0005
"""Probability with which unrelated losses may fit as well as those for which a shift is named."""
_SMOOTH = (-2, 3, 6, 7, 6, 3, -2)
"""Savitzky and Golay's weights for a quadratic over seven points: https://doi.org/10.1021/ac60214a047.

A moving average would leave the curvature of a falling loss in the batch's share.
"""
FILTER_DEPENDENCE = 2.0
"""Dependence that removing the trend adds to independent points.

1 + 2 x the squared autocorrelations of the filter's residuals is 1.9.
"""


@dataclass(frozen=True, slots=True)
class Shift:
    """Shift of the batches: step s had the batch of step s - by. Positive means repeated, negative skipped."""

    by: int
    fit: float  # 1.0: by digests
    points: int


def by_digest(unbroken: Mapping[int, str], resumed: Mapping[int, str]) -> Shift | None:
    """Return the shift that explains most steps, at least nine in ten; None if there is none or too little is known."""
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


def by_loss(unbroken: Mapping[int, float], resumed: Mapping[int, float]) -> Shift | None:
    """Return the shift at which the losses fit best, if chance reaches that fit in fewer than CHANCE of all cases.

    Fisher's transformation gives the probability of one correlation, which is multiplied by the number of shifts tried.
    Where neighbours depend on each other, the points are counted as fewer (Bartlett's formula).
    """
    reference, left = _ranks(_residuals(unbroken)), _ranks(_residuals(resumed))
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
    free = points / _dependence(list(left.values()), list(reference.values())) - 3.0
    if free <= 0.0 or fit <= 0.0:
        return None
    score = math.atanh(min(fit, 1 - 1e-12)) * math.sqrt(free)
    by_chance = 0.5 * math.erfc(score / math.sqrt(2.0)) * len(fits)
    return Shift(best, fit, points) if by_chance <= CHANCE else None


def _dependence(one: Sequence[float], other: Sequence[float]) -> float:
    """Return the factor by which neighbour dependence reduces the number of independent points of two series."""
    lags = range(1, min(len(one), len(other)) // 2)
    both = sum(_correlation(list(_at_lag(one, lag))) * _correlation(list(_at_lag(other, lag))) for lag in lags)
    return max(FILTER_DEPENDENCE, 1.0 + 2.0 * both)


def _at_lag(values: Sequence[float], lag: int) -> Iterator[tuple[float, float]]:
    return zip(values, values[lag:], strict=False)


def equal_shift(unbroken: Mapping[int, float], resumed: Mapping[int, float], tolerance: float) -> int | None:
    """Return the nonzero shift at which every loss equals the unbroken run's: only the step count differs."""
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
    """Return how far two losses differ, as a share of the larger. NaN equals NaN and nothing else."""
    if one == other or (math.isnan(one) and math.isnan(other)):
        return 0.0
    if not (math.isfinite(one) and math.isfinite(other)):
        return math.inf
    return abs(one - other) / max(abs(one), abs(other), 1e-12)


def _residuals(losses: Mapping[int, float]) -> dict[int, float]:
    """Return each loss minus its trend. Omit the first and last three, which have too few neighbours."""
    half, total = len(_SMOOTH) // 2, sum(_SMOOTH)
    left = {}
    for step in losses:
        around = [losses.get(step + by, math.nan) for by in range(-half, half + 1)]
        if all(map(math.isfinite, around)):
            trend = sum(weight * value for weight, value in zip(_SMOOTH, around, strict=True)) / total
            left[step] = losses[step] - trend
    return left


def _ranks(values: Mapping[int, float]) -> dict[int, float]:
    """Return the rank of each value, so that a few spikes that coincide are no fit."""
    rank = {step: float(rank) for rank, step in enumerate(sorted(values, key=values.__getitem__))}
    return {step: rank[step] for step in sorted(values)}


def _correlation(pairs: Sequence[tuple[float, float]]) -> float:
    count = len(pairs)
    one, other = sum(a for a, _ in pairs) / count, sum(b for _, b in pairs) / count
    both = sum((a - one) * (b - other) for a, b in pairs)
    spread = math.sqrt(sum((a - one) ** 2 for a, _ in pairs) * sum((b - other) ** 2 for _, b in pairs))
    return both / spread if spread > 1e-300 and math.isfinite(spread) else 0.0
