"""Priority boosts: the cost of evicting a running job, as Kueue weighs it among jobs of one priority. Pure.

Kueue adds a Workload's boost to its priority, both when it looks for a victim and when it decides who may evict whom
(https://github.com/kubernetes-sigs/kueue/tree/v0.19.2/keps/7990-preemption-cost). Therefore:

- A boost is never negative. A waiting job has none, so a job of the same priority that runs never looks lower to it.
- A boost never reaches the next priority class: every job of a higher class can still evict every job of a lower one.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

Doc = Mapping[str, Any]

BOOST = "kueue.x-k8s.io/priority-boost"
COST = "tpukit.dev/eviction-usd"
"""Annotation of a Workload: the cost in USD that its boost stands for. A boost without it is another program's."""
UNSAVED = "tpukit.dev/unsaved-seconds"
MOST = 1000
"""Boosts are below this number, also where no higher priority class exists."""
CHANGE = 0.01
"""Part of the room above a priority by which a boost has to change before it is written again."""
PACE_SECONDS = 60.0
"""Least time between two writes for one job."""

_LEAST_USD, _MOST_USD = 0.01, 1_000_000.0


@dataclass(frozen=True, slots=True)
class Published:
    """The cost of evicting a job, as its Workload shows it."""

    usd: float
    unsaved: float


def room(priority: int, classes: Iterable[int]) -> int:
    """Return the largest boost that keeps a job of this priority below every higher class."""
    return max(0, min([MOST, *(one - priority for one in classes if one > priority)]) - 1)


def boost(usd: float, most: int) -> int:
    """Return the boost for a cost, from 0 to `most`: the logarithm of the cost, so cents and thousands both count."""
    share = math.log1p(max(0.0, usd) / _LEAST_USD) / math.log1p(_MOST_USD / _LEAST_USD)
    return int(min(1.0, share) * most)


def is_due(current: int | None, wanted: int, most: int) -> bool:
    """Return whether a running job's boost is to be written again."""
    if current is None or current > most:
        return True
    return abs(wanted - current) >= max(1.0, CHANGE * most)


def current(workload: Doc) -> int | None:
    """Return the boost that tpukit wrote; None if there is none, or if it is no number."""
    notes = _notes(workload)
    text = str(notes.get(BOOST, "")) if COST in notes else ""
    return int(text) if text.isascii() and text.isdigit() else None


def has_cost(workload: Doc) -> bool:
    return COST in _notes(workload)


def is_foreign(workload: Doc) -> bool:
    """Return whether another program boosts the job. Two that write one annotation would never agree."""
    notes = _notes(workload)
    return BOOST in notes and COST not in notes


def published(workload: Doc) -> Published | None:
    """Return the cost that the Workload shows, if any."""
    notes = _notes(workload)
    try:
        found = Published(float(notes[COST]), float(notes.get(UNSAVED, 0.0)))
    except (KeyError, ValueError):
        return None
    return found if math.isfinite(found.usd) and math.isfinite(found.unsaved) else None


def written(value: int, usd: float, unsaved: float) -> dict[str, str | None]:
    """Return the annotations of a running job."""
    return {BOOST: str(value), COST: f"{usd:.2f}", UNSAVED: f"{unsaved:.0f}"}


def removed() -> dict[str, str | None]:
    """Return the change that removes the annotations."""
    return {BOOST: None, COST: None, UNSAVED: None}


def _notes(workload: Doc) -> Mapping[str, Any]:
    notes: Mapping[str, Any] = workload["metadata"].get("annotations") or {}
    return notes
