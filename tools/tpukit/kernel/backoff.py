"""Decide what follows an error, by its class: the wait until the next try, and whether to record it. Pure."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from tpukit.core import retry
from tpukit.core.errors import Conflict, Denied, Invalid, NoCapacity, NotFound, NotYet, Transient

AT_ONCE, SOON = 0.0, 0.5
FIRST, LONGEST = 1.0, 60.0
SLOW = 300.0
"""Wait after errors that a person must fix: a grant, a file."""
QUIET = 2
"""Number of transient errors in a row that are not recorded."""


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float
    recorded: bool  # write the error to the record


def after(error: BaseException, failures: int, random: Callable[[], float]) -> Wait:
    """Return the wait after the last of `failures` errors in a row. `random` returns numbers from 0 to 1."""
    if isinstance(error, Conflict):  # another process wrote the record: read it again
        return Wait(AT_ONCE if failures <= QUIET else _growing(failures - QUIET, random), failures > QUIET)
    if isinstance(error, NotYet):
        return Wait(SOON, recorded=False)
    if isinstance(error, (Invalid, Denied)):
        return Wait(retry.spread(retry.growing(failures, 5.0, SLOW), random()), recorded=True)
    asked_for = error.retry_after if isinstance(error, Transient) else 0.0
    wait = max(_growing(failures, random), min(asked_for, SLOW))
    return Wait(wait, recorded=failures > QUIET or isinstance(error, (NoCapacity, NotFound)))


def _growing(failures: int, random: Callable[[], float]) -> float:
    return retry.spread(retry.growing(failures, FIRST, LONGEST), random())
