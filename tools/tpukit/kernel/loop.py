"""Run rounds until stopped. The kernel handles errors of one key, and the loop retries after errors of the store."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Protocol

from tpukit.core import retry
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError

LONGEST_WAIT = 30.0
"""Most seconds between two tries while the store is unreachable."""
LATE_SECONDS = 60.0
"""Seconds without a new round after which a loop counts as hung."""
HANGING_SECONDS = 120.0
"""Seconds after which a call is reported: only uploads and a host's setup command may take longer."""
log = logging.getLogger("tpukit.kernel")


class Works(Protocol):
    def alive(self) -> bool: ...

    def hanging(self, seconds: float) -> Mapping[str, float]: ...


class Loop:
    """A control loop. Call `run` once, in any thread; everything else is thread-safe."""

    def __init__(
        self,
        round: Callable[[], int],  # noqa: A002
        clock: Clock,
        tick: Callable[[], float],
        say: Callable[[str], None],
        *,
        store: str,
        meanwhile: str = "",
        passed: Callable[[], None] = lambda: None,
        failed: Callable[[], None] = lambda: None,
        kernel: Works | None = None,
    ) -> None:
        """Create a loop that calls `round` every `tick` seconds.

        `store`: its name in messages; `meanwhile`: what continues while it is unreachable. `passed` and `failed` are
        called after each round. `kernel`: the kernel that the rounds drive.
        """
        self._kernel = kernel
        self._once, self._clock, self._tick, self._say = round, clock, tick, say
        self._store, self._meanwhile = store, meanwhile
        self._passed, self._failed = passed, failed
        self._stop, self._wake = threading.Event(), threading.Event()
        self._beat = clock.monotonic()
        self._finished = 0.0  # end of the last successful round
        self._away = ""
        self._failures = 0

    def run(self, *, until_idle: bool = False) -> None:
        """Run until stopped; with `until_idle`, until a round finds nothing left."""
        try:
            while not self._stop.is_set():
                if not self.round() and until_idle:
                    return
                self._pause()
        finally:
            self._stop.set()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def wake(self) -> None:
        """Shorten the wait: something may have changed."""
        self._wake.set()

    def alive(self) -> bool:
        """Report whether rounds start and finish. An unreachable store is no reason for a restart."""
        if self._kernel is not None and not self._kernel.alive():
            return False
        return self._clock.monotonic() - self._beat < LATE_SECONDS + self._tick() + LONGEST_WAIT

    def hanging(self) -> Mapping[str, float]:
        """Return the calls that have not returned, with the seconds since."""
        return self._kernel.hanging(HANGING_SECONDS) if self._kernel is not None else {}

    def ready(self) -> bool:
        """Report whether the store is reachable and a round succeeded recently."""
        finished = self._finished
        return not self._away and finished > 0 and self._clock.monotonic() - finished < LATE_SECONDS + self._tick()

    def beside(self, name: str, work: Callable[[], None], seconds: float) -> threading.Event:
        """Run `work` periodically in a background thread; the returned event is set after its first run."""
        once = threading.Event()

        def repeat() -> None:
            while True:
                with suppress(Exception):
                    self._try(name, work)
                once.set()
                if self._stop.wait(seconds):
                    return

        threading.Thread(target=repeat, name=name, daemon=True).start()
        return once

    def round(self) -> int:
        """Run one round, and return how much is left. An unknown number counts as one."""
        self._beat = self._clock.monotonic()
        try:
            left = self._once()
        except Exception as error:  # a daemon goes on  # noqa: BLE001
            self._trouble(error)
            return 1
        self._finished = self._clock.monotonic()
        self._passed()
        if self._away:
            self._say(f"{self._store} is reachable again")
        self._away, self._failures = "", 0
        return left

    def _trouble(self, error: Exception) -> None:
        self._failures += 1
        self._failed()
        if not isinstance(error, TpukitError):
            log.error("a round failed", exc_info=error)
        if not self._away:
            self._say(f"{error or type(error).__name__}\n  {self._meanwhile}retrying until it works")
        self._away = str(error) or type(error).__name__

    def _pause(self) -> None:
        """Wait for the next round. A hint at most halves the wait, because our own writes are hints too."""
        tick = self._tick()
        if self._failures:
            self._stop.wait(retry.growing(self._failures, tick * 2, LONGEST_WAIT))
        elif not self._stop.wait(min(tick / 2, 1.0)):
            self._wake.wait(max(tick / 2, tick - 1.0))
        self._wake.clear()

    def _try(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except TpukitError as error:
            self._say(f"{name}: {error}")
        except Exception:
            log.exception("%s failed", name)
