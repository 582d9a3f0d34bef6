"""One thread, one simulated clock: processes are greenlets that wait until a time and run in that order.

A waiting process is suspended in the middle of its stack, so the product's own code can be paused before any call while
the rest of the world continues.
"""

from __future__ import annotations

import hashlib
import heapq
import zlib
from collections.abc import Callable

from greenlet import GreenletExit, getcurrent, greenlet

LATENCY = 2.0
"""Seconds below which a wait counts as waiting for an answer within a round."""


class Scheduler:
    def __init__(self, seed: int, start: float) -> None:
        self.now = self.start = start
        self._seed = seed
        self._heap: list[tuple[float, int, int, greenlet]] = []
        self._count = 0
        self._until = start
        self._hub: greenlet = getcurrent()
        self._alive: dict[greenlet, None] = {}
        self.steps = 0
        self.stopped = False

    def spawn(self, work: Callable[[], None], after: float = 0.0) -> None:
        process = greenlet(work, parent=self._hub)
        self._alive[process] = None
        self._wake(process, after)

    def sleep(self, seconds: float) -> None:
        """Suspend the calling process; outside a process no time passes."""
        current = getcurrent()
        if current is self._hub or self.stopped:
            return
        wakes = self.now + seconds
        if seconds < LATENCY and wakes < self._until and (not self._heap or wakes < self._heap[0][0]):
            self.now = wakes  # no other process runs before that
            return
        self._wake(current, seconds)
        self._hub.switch()

    def run(self, until: float, done: Callable[[], bool]) -> None:
        """Run processes until `until`, or until `done` after a step."""
        self._until = until
        while self._heap and self._heap[0][0] <= until:
            at, _, _, process = heapq.heappop(self._heap)
            self.now = max(self.now, at)
            self.steps += 1
            process.switch()
            if process.dead:
                self._alive.pop(process, None)
            if done():
                return
        self.now = max(self.now, until)

    def close(self) -> None:
        """End processes that still wait, without letting them do anything more."""
        self.stopped = True
        for process in list(self._alive):
            if process and not process.dead:
                process.throw(GreenletExit)
        self._alive.clear()
        self._heap.clear()

    def _wake(self, process: greenlet, seconds: float) -> None:
        self._count += 1
        order = zlib.crc32(b"%d/%d" % (self._seed, self._count))  # among processes that wake at the same time
        heapq.heappush(self._heap, (self.now + seconds, order, self._count, process))


class Trace:
    """The history, line by line, and its hash: two runs are identical if their hashes are."""

    def __init__(self, scheduler: Scheduler, folder: str, *, kept: bool) -> None:
        self._scheduler, self._folder, self._kept = scheduler, folder, kept
        self._every: list[str] = []
        self.lines: list[str] = []

    def add(self, who: str, text: str, *, shown: bool = True) -> None:
        at = self._scheduler.now - self._scheduler.start
        line = f"{at:9.2f} {who:8} {text}\n"
        self._every.append(line)
        if self._kept and shown:
            self.lines.append(line[:-1].replace(self._folder, "~"))

    @property
    def digest(self) -> str:
        every = "".join(self._every).replace(self._folder, "~")
        return hashlib.blake2b(every.encode(), digest_size=16).hexdigest()


class SimulatedClock:
    """The clock of one machine: it may be wrong, run fast or slow, and stop while the machine is suspended."""

    def __init__(self, scheduler: Scheduler, offset: float = 0.0, drift: float = 0.0) -> None:
        self._scheduler, self._drift = scheduler, drift
        self.offset = offset
        self.asleep = 0.0

    def now(self) -> float:
        return self._scheduler.now + self.offset + self._passed() * self._drift

    def monotonic(self) -> float:
        return 1000.0 + self._passed() * (1 + self._drift) - self.asleep

    def elapsed(self) -> float:
        return 5000.0 + self._passed() * (1 + self._drift)

    def sleep(self, seconds: float) -> None:
        self._scheduler.sleep(seconds)

    def _passed(self) -> float:
        return self._scheduler.now - self._scheduler.start
