"""Measure how long saves block training, from the times at which steps are reported.

A save shows as a longer step: the time between two reports with a save between them, less the usual time of the steps
in it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import median

from tpukit.places.base import HostView

SAMPLES = 64
LEAST = 3
"""Number of intervals without a save after which the time of a step counts as known."""


@dataclass(slots=True)
class _Host:
    step: int
    moved: float
    saved: int
    step_seconds: deque[float] = field(default_factory=lambda: deque(maxlen=SAMPLES))


class Saves:
    """Save costs of the attempts that one process drives."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int], _Host] = {}

    def held(self, job_id: str, attempt: int, hosts: Sequence[HostView]) -> float | None:
        """Return for how long the save since the last call blocked training.

        None if there was no save, or if the time of a step is not known yet.
        """
        first = min((one for one in hosts if one.step is not None and one.moved), key=_place, default=None)
        if first is None or first.step is None:
            return None
        key = job_id, attempt
        last = self._last.get(key)
        if last is None:
            self._last[key] = _Host(first.step, first.moved, first.saved)
            return None
        steps, seconds = first.step - last.step, first.moved - last.moved
        if steps <= 0 or seconds <= 0:
            return None
        saved, last.saved = first.saved > last.saved, first.saved
        last.step, last.moved = first.step, first.moved
        if not saved:
            last.step_seconds.append(seconds / steps)
            return None
        return seconds - steps * median(last.step_seconds) if len(last.step_seconds) >= LEAST else None

    def keep_only(self, job_ids: Iterable[str]) -> None:
        active = set(job_ids)
        for key in [key for key in list(self._last) if key[0] not in active]:
            self._last.pop(key, None)


def _place(host: HostView) -> tuple[int, int]:
    return host.slice, host.index
