"""Being told to leave, for programs that run until then."""

from __future__ import annotations

import signal
import threading

_PAUSE_SECONDS = 0.2
"""A signal that comes just before a wait without end begins is noticed when something else ends that wait, if ever."""


class Leaving:
    """SIGTERM and Ctrl-C, from when it is made. For the main thread, which has nothing else to do than to wait."""

    def __init__(self) -> None:
        self.asked = False
        self._done = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        # No lock is taken: this may run while the very thread it interrupts holds that lock.
        self.asked = True

    def done(self) -> None:
        """There is nothing left to wait for."""
        self._done.set()

    def wait(self) -> None:
        """Until somebody asks, or all is done."""
        while not self.asked and not self._done.wait(_PAUSE_SECONDS):
            pass
