"""Judge what a program did after SIGTERM, from its steps and saves until it exited. Pure."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median

from tpukit.core.quantities import counted
from tpukit.drill.losses import Struck, What
from tpukit.drill.verdicts import Broken, Said, Word

STEPS_IN_FLIGHT = 2
"""Steps that a program may lose although it saved: those in progress at SIGTERM."""
STEPS_IN_FLIGHT_MOST = 5
"""Steps after SIGTERM above which a program ignored it."""


def is_told(run: Broken) -> bool:
    return run.loss.what in (What.TERM, What.PREEMPT)


def trained_on(run: Broken, struck: Struck, grace: float) -> bool:
    """Return whether the program made steps until the end of the grace.

    A place may deliver SIGTERM a second or two after the strike: steps in the first half of the grace prove nothing.
    """
    seconds = _last_report(run, struck) - struck.at
    steps = max((one.step for one in run.trace if one.attempt == struck.attempt), default=struck.step) - struck.step
    return (
        is_told(run)
        and steps > STEPS_IN_FLIGHT
        and seconds > grace / 2
        and seconds + STEPS_IN_FLIGHT * _step_seconds(run, struck) >= 0.9 * grace
    )


def ignored(run: Broken, struck: Struck) -> Said | None:
    """Judge a program that trained to its end after SIGTERM: with more to do it would have been killed."""
    steps = max((one.step for one in run.trace if one.attempt == struck.attempt), default=struck.step) - struck.step
    if not is_told(run) or not run.ended.completed or steps <= STEPS_IN_FLIGHT_MOST:
        return None
    return Word.LOSES_MORE, f"it made {steps} steps after SIGTERM and trained to its end"


def saved_and_trained_on(run: Broken, struck: Struck, grace: float) -> bool:
    """Return whether the program saved after SIGTERM as it always does, and trained on."""
    last = _last_report(run, struck)
    saved = any(save.done and struck.at < save.began and save.changed < last for save in run.saves)
    return saved and trained_on(run, struck, grace)


def left_unfinished(run: Broken, struck: Struck) -> bool:
    """Return whether the save that SIGTERM caused was left unfinished and was not restored."""
    step = min((one.step for one in run.trace if one.attempt > struck.attempt and not one.is_restore), default=0)
    began = [save for save in run.saves if struck.at <= save.began < _resumed(run, struck)]
    return is_told(run) and any(not save.done and save.step >= step for save in began)


def unsaved(run: Broken, struck: Struck, steps_lost: int, saving_seconds: float, grace: float) -> Said | None:
    """Judge steps that were lost although there was time to save them."""
    if not is_told(run) or saving_seconds >= grace:
        return None
    if steps_lost and left_unfinished(run, struck) and not trained_on(run, struck, grace):
        text = f"{counted(steps_lost, 'step was', 'steps were')} lost: the save that it began after SIGTERM"
        return Word.LOSES_MORE, f"{text} was not finished when it ended"
    # A program that trains on and saves at every step loses none, but is still killed.
    most = -1 if trained_on(run, struck, grace) else STEPS_IN_FLIGHT if _wrote(run, struck) else 0
    if steps_lost <= most:
        return None
    time = f"it had {grace:.1f} s to save and a save takes {saving_seconds:.1f} s"
    if most < 0:
        time += ": it trained on, and was killed before its next save" if steps_lost else ": it trained on until killed"
    return Word.LOSES_MORE, f"{counted(steps_lost, 'step was', 'steps were')} lost, although {time}"


def _wrote(run: Broken, struck: Struck) -> bool:
    """Return whether anything was saved between SIGTERM and the next attempt."""
    return any(save.changed >= struck.at and save.began < _resumed(run, struck) for save in run.saves)


def _last_report(run: Broken, struck: Struck) -> float:
    return max((one.at for one in run.trace if one.attempt == struck.attempt), default=struck.at)


def _step_seconds(run: Broken, struck: Struck) -> float:
    times = sorted({one.at for one in run.trace if one.attempt == struck.attempt})
    return median(later - at for at, later in pairwise(times)) if len(times) > 1 else 0.0


def _resumed(run: Broken, struck: Struck) -> float:
    return min((one.at for one in run.trace if one.attempt > struck.attempt), default=math.inf)
