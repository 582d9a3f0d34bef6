"""The only clock. Everything that waits or stamps takes one, so that tests can turn its hands."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch: for stamps. It may be set back, and goes on while the machine sleeps."""

    def monotonic(self) -> float:
        """Seconds that this machine was awake: for how long something takes."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """Time passes only when somebody sleeps on it."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._awake = 1000.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._awake

    def sleep(self, seconds: float) -> None:
        self._now += seconds
        self._awake += seconds

    def set(self, now: float) -> None:
        """As when somebody sets the clock, or the machine was asleep until then."""
        self._now = now
