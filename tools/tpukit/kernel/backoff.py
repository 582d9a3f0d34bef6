"""What follows an error, by its class: how long to wait before the same key is tried again, and who is told. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tpukit.core.errors import Conflict, Denied, Invalid, NoCapacity, NotFound, NotYet, Transient

AT_ONCE, SOON = 0.0, 0.5
FIRST, LONGEST = 1.0, 60.0
SLOW = 300.0
"""For what only a person can change: a grant, a file."""
QUIET = 2
"""Passing trouble this often in a row is not worth a word on the record."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float
    recorded: bool  # the record says what is wrong


def after(error: BaseException, failures: int, random: Callable[[], float]) -> Wait:
    """`failures` counts those in a row, this one included; `random` gives numbers from 0 to 1."""
    if isinstance(error, Conflict):  # somebody else wrote: read again
        return Wait(AT_ONCE if failures <= QUIET else _growing(failures - QUIET, random), failures > QUIET)
    if isinstance(error, NotYet):
        return Wait(SOON, recorded=False)
    if isinstance(error, (Invalid, Denied)):
        return Wait(min(SLOW, 5.0 * 2 ** min(failures - 1, 10)) * _jitter(random), recorded=True)
    asked_for = error.retry_after if isinstance(error, Transient) else 0.0
    wait = max(_growing(failures, random), min(asked_for, SLOW))
    return Wait(wait, recorded=failures > QUIET or isinstance(error, (NoCapacity, NotFound)))


def _growing(failures: int, random: Callable[[], float]) -> float:
    return min(LONGEST, FIRST * 2.0 ** min(failures - 1, 10)) * _jitter(random)


def _jitter(random: Callable[[], float]) -> float:
    """From a half to the whole, so that many that failed together do not come back together."""
    return 0.5 + random() / 2
