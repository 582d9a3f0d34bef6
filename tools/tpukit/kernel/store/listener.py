"""A listener whose events are hints, recreated periodically, and stopped while the server is unreachable.

Listeners are known to fall silent without an error, so their silence means nothing, and they exist only while calls
succeed.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from tpukit.core.clock import SYSTEM

RENEW_SECONDS = 600.0
PAUSE_SECONDS = 1.0
PROBE_SECONDS = 5.0  # one read each, some 17,000 a day
_log = logging.getLogger(__name__)


class Listener:
    """A background thread that listens for changes, and calls `wake`.

    `subscribe(changed, lost)` returns a function that stops listening; `reachable` sends a small request.
    """

    def __init__(
        self,
        subscribe: Callable[[Callable[[], None], Callable[[], None]], Callable[[], None]],
        reachable: Callable[[], bool],
        wake: Callable[[], None],
    ) -> None:
        self._subscribe = subscribe
        self._reachable = reachable
        self._wake = wake
        self._news = threading.Condition()
        self._changed = False
        self._trouble = False
        self._stopped = False
        self._thread = threading.Thread(target=self._run, name="store-watch", daemon=True)
        self._thread.start()

    def trouble(self) -> None:
        """Note a failed call: the server may be unreachable."""
        self._tell("_trouble")

    def stop(self) -> None:
        self._tell("_stopped")
        if self._thread is not threading.current_thread():
            self._thread.join()

    def _tell(self, what: str) -> None:
        with self._news:
            setattr(self, what, True)
            self._news.notify_all()

    def _run(self) -> None:
        while not self._stopped:
            if self._reachable():
                self._trouble = False
                self._listen()
                self._wait(PAUSE_SECONDS, ())
            else:
                self._wait(PROBE_SECONDS, ())

    def _listen(self) -> None:
        """Listen until it is time for a new listener, or this one fails."""
        try:
            unsubscribe = self._subscribe(lambda: self._tell("_changed"), self.trouble)
        except Exception as error:  # whatever the client raises, it is retried later  # noqa: BLE001
            _log.debug("no listener: %s", error)
            return
        try:
            until = SYSTEM.monotonic() + RENEW_SECONDS
            while not self._stopped and SYSTEM.monotonic() < until:
                self._wait(PROBE_SECONDS, ("_changed", "_trouble"))
                if self._trouble or not (self._changed or self._reachable()):
                    return
                if self._changed:
                    self._changed = False
                    try:
                        self._wake()
                    except Exception:  # the watch goes on  # noqa: BLE001
                        _log.exception("a callback for a change of the store failed")
        finally:
            with suppress(Exception):  # it may have ended by itself
                unsubscribe()

    def _wait(self, seconds: float, news: tuple[str, ...]) -> None:
        with self._news:
            self._news.wait_for(lambda: self._stopped or any(getattr(self, name) for name in news), seconds)
