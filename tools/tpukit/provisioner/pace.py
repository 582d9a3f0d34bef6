"""The number of operations allowed at once: as configured, or fewer after GKE was too busy."""

from __future__ import annotations

import threading

RECOVERY_SECONDS = 30.0
"""Seconds without a refusal after which one more operation is allowed."""


class Pace:
    """A limit that halves when GKE refuses, and grows back by one. Safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._limit: float | None = None  # None: as configured
        self._most = 1
        self._since = 0.0

    def limit(self, most: int, now: float) -> int:
        with self._lock:
            self._most = most
            if self._limit is None:
                return most
            grown = int(self._limit + (now - self._since) / RECOVERY_SECONDS)
            if grown >= most:
                self._limit = None
                return most
            return max(1, grown)

    def slow(self, now: float) -> None:
        with self._lock:
            if self._limit is not None and now - self._since < 1.0:
                return  # calls that were refused together count as one refusal
            grown = self._most if self._limit is None else self._limit + (now - self._since) / RECOVERY_SECONDS
            self._limit, self._since = float(max(1, int(min(grown, self._most) / 2))), now
