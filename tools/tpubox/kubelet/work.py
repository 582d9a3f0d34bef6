"""A work queue: several keys are handled in parallel, each key is queued once and handled by one worker at a time."""

from __future__ import annotations

import heapq
import os
import select
import threading
import time
from collections.abc import Callable
from pathlib import Path

from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase


class Line:
    """The waiting keys. A key that is added while it is being worked on is queued again afterwards."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._due: list[tuple[float, str]] = []
        self._at: dict[str, float] = {}  # when each waiting key is due
        self._busy: set[str] = set()
        self._again: dict[str, float] = {}  # keys added while they are being worked on
        self._closed = False

    def add(self, key: str, after: float = 0.0) -> None:
        due = time.monotonic() + after
        with self._changed:
            waiting = self._again if key in self._busy else self._at
            if waiting.get(key, due + 1) <= due:
                return
            waiting[key] = due
            if key not in self._busy:
                heapq.heappush(self._due, (due, key))
                self._changed.notify()

    def take(self) -> str | None:
        """Return the next key when it is due, or None when the queue is closed."""
        with self._changed:
            while not self._closed:
                while self._due and self._at.get(self._due[0][1]) != self._due[0][0]:
                    heapq.heappop(self._due)  # it was added again for an earlier time
                wait = self._due[0][0] - time.monotonic() if self._due else None
                if wait is not None and wait <= 0:
                    _, key = heapq.heappop(self._due)
                    del self._at[key]
                    self._busy.add(key)
                    return key
                self._changed.wait(wait)
            return None

    def done(self, key: str) -> None:
        with self._changed:
            self._busy.discard(key)
            due = self._again.pop(key, None)
            if due is not None:
                self._at[key] = due
                heapq.heappush(self._due, (due, key))
                self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class ExitWatcher:
    """A watcher that calls `ended` once for each watched run as soon as it is over. It costs nothing while they run."""

    def __init__(self, ended: Callable[[str], None]) -> None:
        self._ended = ended
        self._poll = select.epoll()
        self._watched: dict[int, tuple[str, Path]] = {}
        self._folders: set[Path] = set()
        self._lock = threading.Lock()

    def watch(self, key: str, run: Path) -> None:
        with self._lock:
            if run in self._folders:
                return
            try:
                process = os.pidfd_open(pods.status(run).shim)
            except OSError:
                process = -1
            # Only now is it certain that the process id had not been reused.
            if process < 0 or pods.status(run).phase is not Phase.RUNNING:
                if process >= 0:
                    os.close(process)
                self._ended(key)
                return
            self._watched[process] = (key, run)
            self._folders.add(run)
            self._poll.register(process, select.EPOLLIN)

    def serve(self) -> None:
        """Report ended runs; needs its own thread."""
        while True:
            for process, _ in self._poll.poll():
                with self._lock:
                    key, run = self._watched.pop(process)
                    self._folders.discard(run)
                    self._poll.unregister(process)
                    os.close(process)
                self._ended(key)
