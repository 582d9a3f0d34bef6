"""Signs of life between two steps, for readers that must tell a long compilation from a program that hangs.

While no step is reported, a thread adds the processor time of this process to its progress, and whether it saves. XLA
compiles and Orbax saves without Python's lock, so the thread runs meanwhile; in a stopped process it does not.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from tpukit.host.progress import Progress

SECONDS = 10.0


class Pulse:
    def __init__(
        self,
        progress: Progress,
        *,
        clock: Callable[[], float] = time.monotonic,
        cpu: Callable[[], float] = time.process_time,
    ) -> None:
        self._progress, self._clock, self._cpu = progress, clock, cpu
        self._doing = ""
        self._stopped = threading.Event()

    def start(self) -> None:
        threading.Thread(target=self._run, name="tpukit-pulse", daemon=True).start()

    def stop(self) -> None:
        self._stopped.set()

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Report within the block that this process is `saving` or `restoring`, which takes little processor time."""
        before, self._doing = self._doing, what
        try:
            yield
        finally:
            self._doing = before

    def beat(self) -> None:
        """Report now, unless a step was reported lately."""
        doing = {"doing": self._doing} if self._doing else {}
        self._progress.beat({"beat": round(self._clock(), 1), "cpu": round(self._cpu(), 1), **doing}, SECONDS)

    def _run(self) -> None:
        while not self._stopped.wait(SECONDS):
            self.beat()
