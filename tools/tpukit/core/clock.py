"""Clocks. Everything that waits or takes timestamps gets one as an argument, so that tests can control time."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    def now(self) -> float:
        """Return the seconds since the epoch, for timestamps. They may be set back, and include time asleep."""

    def monotonic(self) -> float:
        """Return the seconds for which this machine was awake, for durations."""

    def elapsed(self) -> float:
        """Return the seconds since some moment, including time asleep or suspended."""

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


SYSTEM = SystemClock()
"""The clock of this process, for code whose tests need no other one."""


class ManualClock:
    """A clock that advances only in `sleep` and `suspend`."""

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
        """Advance the time as if this machine were asleep."""
        self._now += seconds
        self._elapsed += seconds

    def set(self, now: float) -> None:
        """Set the wall clock only."""
        self._now = now
