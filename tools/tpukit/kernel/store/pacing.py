"""A token bucket: so many writes a second, with some in advance after a pause."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class TokenBucket:
    """Safe from any thread. Whoever comes first is served first: a large request is not overtaken by small ones."""

    def __init__(
        self,
        rate: float,
        *,
        now: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`rate`: tokens a second, and the most that are saved up."""
        assert rate > 0
        self._rate, self._now, self._sleep = rate, now, sleep
        self._lock = threading.Lock()
        self._tokens, self._at = rate, now()

    def take(self, count: int) -> None:
        """Wait until so many may be had."""
        if (seconds := self._reserve(count)) > 0:
            self._sleep(seconds)

    def _reserve(self, count: int) -> float:
        """Seconds after which they are there. They are taken at once, so that the next one waits behind them."""
        with self._lock:
            now = self._now()
            self._tokens = min(self._rate, self._tokens + max(0.0, now - self._at) * self._rate) - count
            self._at = now
            return -self._tokens / self._rate
