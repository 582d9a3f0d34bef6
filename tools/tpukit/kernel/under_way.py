"""Work in threads: at most one piece under each name at a time, and a limit after which a piece is abandoned."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from tpukit.core.clock import SYSTEM, Clock

Name = tuple[str, str]
"""A thread pool and the work in it. The second part is empty for a group's observation."""


@dataclass(frozen=True, slots=True)
class _Piece:
    began: float
    limit: float
    work: Callable[[], None]


class UnderWay:
    """Pieces of work under way. Thread-safe. With 0 `workers`, work runs in the calling thread."""

    def __init__(self, clock: Clock, workers: int) -> None:
        self._clock, self._workers = clock, workers
        self._pieces: dict[Name, _Piece] = {}
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()

    def names(self) -> frozenset[Name]:
        with self._lock:
            return frozenset(self._pieces)

    def start(self, name: Name, limit: float, work: Callable[[], None]) -> None:
        """Run `work` unless something is under way under that name. `limit`: seconds after which it counts as hung."""
        if not self._workers:
            work()
            return
        with self._lock:
            if name in self._pieces:
                return
            piece = self._pieces[name] = _Piece(self._clock.monotonic(), limit, work)
            if name[0] not in self._pools:
                self._pools[name[0]] = ThreadPoolExecutor(self._workers + 1, thread_name_prefix=f"drive {name[0]}")
            self._pools[name[0]].submit(self._run, name, piece)

    def running(self) -> Mapping[Name, float]:
        """Return for how many seconds each piece has been under way."""
        now = self._clock.monotonic()
        with self._lock:
            return {name: now - piece.began for name, piece in self._pieces.items()}

    def abandon(self) -> Mapping[Name, float]:
        """Stop waiting for pieces past their limit; return them with their ages. Their threads cannot be stopped."""
        now = self._clock.monotonic()
        with self._lock:
            hung = {name: now - one.began for name, one in self._pieces.items() if now - one.began > one.limit}
            for name in hung:
                del self._pieces[name]
                if pool := self._pools.pop(name[0], None):  # a new pool has all its threads
                    pool.shutdown(wait=False)
        return hung

    def settle(self, seconds: float) -> bool:
        """Wait up to `seconds` until nothing is under way; return whether that is so."""
        due = SYSTEM.monotonic() + seconds
        while self.names():
            if SYSTEM.monotonic() >= due:
                return False
            SYSTEM.sleep(0.01)
        return True

    def close(self) -> None:
        """Drop work that has not begun, without waiting for hung work."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _run(self, name: Name, piece: _Piece) -> None:
        try:
            piece.work()
        finally:
            with self._lock:
                if self._pieces.get(name) is piece:
                    del self._pieces[name]
