"""A token bucket: a number of writes a second, with some saved up after a pause."""

from __future__ import annotations

import threading
from collections.abc import Callable

from tpukit.core.clock import SYSTEM


class TokenBucket:
    """A token bucket, served in order: small requests do not overtake a large one. Thread-safe."""

    def __init__(
        self,
        rate: float,
        *,
        now: Callable[[], float] = SYSTEM.monotonic,
        sleep: Callable[[float], None] = SYSTEM.sleep,
    ) -> None:
        """Create a bucket. `rate`: tokens a second, and the most that are saved up."""
        assert rate > 0
        self._rate, self._now, self._sleep = rate, now, sleep
        self._lock = threading.Lock()
        self._tokens, self._at = rate, now()

    def take(self, count: int) -> None:
        """Wait until `count` tokens are available."""
        if (seconds := self._reserve(count)) > 0:
            self._sleep(seconds)

    def _reserve(self, count: int) -> float:
        """Take tokens, and return the seconds until they are available. Later callers wait behind them."""
        with self._lock:
            now = self._now()
            self._tokens = min(self._rate, self._tokens + max(0.0, now - self._at) * self._rate) - count
            self._at = now
            return -self._tokens / self._rate
