"""The only clock. Everything that waits or stamps takes one, so that tests can turn its hands."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Seconds since the epoch: for stamps. It may be set back, and goes on while the machine sleeps."""

    def monotonic(self) -> float:
        """Seconds that this machine was awake: for how long something takes."""

    def elapsed(self) -> float:
        """Seconds since some moment, those included for which this machine slept or this process was suspended."""

    def sleep(self, seconds: float) -> None: ...


class SystemClock:
    def now(self) -> float:
        return time.time()

    def monotonic(self) -> float:
        return time.monotonic()

    def elapsed(self) -> float:
        boot: int | None = getattr(time, "CLOCK_BOOTTIME", None)  # macOS has none: its monotonic clock counts sleep
        return time.monotonic() if boot is None else time.clock_gettime(boot)

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)


class ManualClock:
    """Time passes only when somebody sleeps on it."""

    def __init__(self, start: float = 1_700_000_000.0) -> None:
        self._now = start
        self._awake = 1000.0
        self._elapsed = 5000.0

    def now(self) -> float:
        return self._now

    def monotonic(self) -> float:
        return self._awake

    def elapsed(self) -> float:
        return self._elapsed

    def sleep(self, seconds: float) -> None:
        self._awake += seconds
        self.suspend(seconds)

    def suspend(self, seconds: float) -> None:
        """Let time pass while this machine sleeps."""
        self._now += seconds
        self._elapsed += seconds

    def set(self, now: float) -> None:
        """Set the wall clock and nothing else."""
        self._now = now
