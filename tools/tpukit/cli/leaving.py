"""SIGTERM and Ctrl-C for long-running programs."""

from __future__ import annotations

import signal
import threading

_PAUSE_SECONDS = 0.2
"""Poll interval: a signal just before an unlimited wait would go unnoticed until that wait ends."""


class Leaving:
    """Handler of SIGTERM and Ctrl-C from construction on. Use it in a main thread that only waits."""

    def __init__(self) -> None:
        self.asked = False
        self._done = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._ask)

    def _ask(self, *_: object) -> None:
        # Take no lock: the interrupted thread may hold it.
        self.asked = True

    def done(self) -> None:
        """End the wait: the work is done."""
        self._done.set()

    def wait(self) -> None:
        """Wait until a signal arrives or the work is done."""
        while not self.asked and not self._done.wait(_PAUSE_SECONDS):
            pass
