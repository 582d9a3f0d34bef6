"""Retries: how long to wait after an error, and calls that are repeated.

Places without tpukit (`tpukit.host`, the program in a shim) have their own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from tpukit.core.errors import TpukitError, Transient

T = TypeVar("T")

_DOUBLINGS = 30
"""More are past every bound, and a thousand would overflow a float."""


def growing(failures: int, first: float, longest: float) -> float:
    """Return the wait after so many failures in a row: `first`, then twice as long each time, up to `longest`."""
    return min(longest, first * 2.0 ** min(max(failures, 1) - 1, _DOUBLINGS))


def spread(seconds: float, random: float) -> float:
    """Return half to all of a wait, so that what failed together is not retried together. `random` is from 0 to 1."""
    return seconds * (0.5 + random / 2)


def is_transient(error: TpukitError, pause: float) -> bool:
    return isinstance(error, Transient)


def call(
    work: Callable[[], T],
    pauses: Iterable[float],
    sleep: Callable[[float], None],
    again: Callable[[TpukitError, float], bool] = is_transient,
    *,
    longest: float = 0.0,
) -> T:
    """Call `work` until it returns, with a pause after each failure. The last error is raised once no pause is left.

    `again` gets the error and the pause before the next call. If it returns False, the error is raised. A pause that
    the server asked for is kept, up to `longest` seconds.
    """
    following = iter(pauses)
    while True:
        try:
            return work()
        except TpukitError as error:
            pause = next(following, None)
            if pause is None or not again(error, pause):
                raise
            asked_for = error.retry_after if isinstance(error, Transient) else 0.0
        sleep(max(pause, min(asked_for, longest)))
