"""Measure how long saves block training, from the times of steps and of files. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import median


@dataclass(frozen=True, slots=True)
class Hold:
    """Seconds that a save takes from training, with the error of that number."""

    step_seconds: float | None = None  # of one step without a save, however rarely steps are printed
    seconds: float | None = None
    error: float = math.inf

    @property
    def is_measured(self) -> bool:
        return self.seconds is not None and self.seconds > 2.0 * self.error


def measure(times: Mapping[int, float], saves: Sequence[tuple[float, float]], pause: float = 0.0) -> Hold:
    """Measure one host. `times` is when each step was read, `saves` is when each save was seen to begin and end.

    A save costs the extra time of the steps around it, compared with as many steps elsewhere. A background save
    overlaps several steps, all of which count. Of steps that are read at once, after a `pause` of the drill on a busy
    machine, only the newest has a time.
    """
    newest = {times[step]: step for step in sorted(times)}
    times = {step: at for at, step in newest.items()}
    steps = sorted(times)
    around = [_around(times, steps, *save) for save in saves]
    windows = [window for window in around if window is not None]
    quiet = [
        (times[later] - times[earlier]) / (later - earlier)
        for earlier, later in pairwise(steps)
        if not any(first < later and earlier < last for first, last in windows)
    ]
    if not quiet:
        return Hold()
    step = median(quiet)
    extra = [times[last] - times[first] - step * (last - first) for first, last in windows]
    if not extra:
        return Hold(step)
    held = max(0.0, median(extra))
    spread = 1.4826 * median(abs(one - held) for one in extra)
    # The spread of a window of n steps is sqrt(n) times that of one step.
    longest = max(last - first for first, last in windows)
    one_step = 1.4826 * median(abs(one - step) for one in quiet)
    read_late = pause / math.sqrt(6)  # standard deviation of the sum of two delays from 0 to `pause`
    error = math.hypot(spread, one_step * math.sqrt(longest), read_late) / math.sqrt(len(extra))
    return Hold(step, held, error)


def _around(times: Mapping[int, float], steps: Sequence[int], began: float, ended: float) -> tuple[int, int] | None:
    """Return the last step read before a save was seen and the first one after it; None at either end of a run.

    A step that was read together with the beginning of the save was reported at an unknown time before it.
    """
    before = [step for step in steps if times[step] < began]
    after = [step for step in steps if times[step] > max(began, ended)]
    return (before[-1], after[0]) if before and after else None
