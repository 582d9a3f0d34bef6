"""Rounds, for ever. No error ends them: those of one job are the kernel's affair, those of the store are waited out."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from contextlib import suppress

from tpukit.clock import Clock
from tpukit.errors import TpukitError
from tpukit.jobs.driver import Driver
from tpukit.records import JOBS
from tpukit.serve.metrics import Metrics
from tpukit.store import Store

LONGEST_WAIT = 30.0
"""Between two tries while the store is away."""
SWEEP_SECONDS = 60.0
"""Between two sweeps: what is to be removed has to be seen twice over a minimum age."""
HOUSEKEEPING_SECONDS = 3600.0
LATE_SECONDS = 60.0
"""A loop that has not come round for so long hangs."""
SETTLE_SECONDS = 5.0
log = logging.getLogger("tpukit.serve")


class Service:
    """`run` is called once, in any thread; everything else may be called from anywhere."""

    def __init__(
        self,
        store: Store,
        driver: Driver,
        clock: Clock,
        metrics: Metrics,
        *,
        tick: float,
        say: Callable[[str], None],
        housekeeping: Callable[[], None] | None = None,
    ) -> None:
        self._store, self._driver, self._clock, self._metrics = store, driver, clock, metrics
        self._tick, self._say = tick, say
        self._housekeeping = housekeeping
        self._stop, self._wake = threading.Event(), threading.Event()
        self._beat = clock.monotonic()
        self._finished = 0.0  # when a round last went through
        self._away = ""
        self._failures = 0

    def run(self, *, until_idle: bool = False) -> None:
        background = [self._start("sweep", self._sweep, SWEEP_SECONDS)]
        if self._housekeeping:
            self._start("housekeeping", self._housekeeping, HOUSEKEEPING_SECONDS)
        unwatch = self._watch()
        try:
            while not self._stop.is_set():
                if not self._round() and until_idle:
                    self._driver.kernel.settle(SETTLE_SECONDS)
                    background[0].wait(SETTLE_SECONDS)
                    return
                self._pause()
        finally:
            self._stop.set()
            unwatch()

    def stop(self) -> None:
        self._stop.set()
        self._wake.set()

    def alive(self) -> bool:
        """Whether rounds come and go. A store that is away is no reason to be started anew."""
        return self._clock.monotonic() - self._beat < LATE_SECONDS + self._tick + LONGEST_WAIT

    def ready(self) -> bool:
        """Whether the store answers and a round went through lately."""
        finished = self._finished
        return not self._away and finished > 0 and self._clock.monotonic() - finished < LATE_SECONDS + self._tick

    def _round(self) -> int:
        """How many jobs are left that can be driven from here. An unknown number counts as one."""
        self._beat = self._clock.monotonic()
        try:
            self._driver.round()
        except Exception as error:
            self._trouble(error)
            return 1
        self._finished = self._clock.monotonic()
        self._metrics.round()
        if self._away:
            self._say("the store is back")
        self._away, self._failures = "", 0
        return self._driver.kernel.drivable

    def _trouble(self, error: Exception) -> None:
        self._failures += 1
        self._metrics.store_error()
        if not isinstance(error, TpukitError):
            log.error("a round failed", exc_info=error)
        if not self._away:
            self._say(f"{error or type(error).__name__}\n  jobs run on; tried again until it goes through")
        self._away = str(error) or type(error).__name__

    def _pause(self) -> None:
        """A hint that something changed shortens the wait, to no less than half: what we write ourselves is one too."""
        if self._failures:
            self._stop.wait(min(LONGEST_WAIT, self._tick * 2.0 ** min(self._failures, 10)))
        elif not self._stop.wait(self._tick / 2):
            self._wake.wait(self._tick / 2)
        self._wake.clear()

    def _watch(self) -> Callable[[], None]:
        try:
            return self._store.watch(JOBS, self._wake.set)
        except TpukitError:  # a hint that never comes costs a tick
            return lambda: None

    def _sweep(self) -> None:
        for name in self._driver.sweep():
            self._say(f"removed {name}: no active job knows it")

    def _start(self, name: str, work: Callable[[], None], seconds: float) -> threading.Event:
        """Do it again and again beside the rounds; what comes back is set when it was done once."""
        once = threading.Event()

        def repeat() -> None:
            while not self._stop.is_set():
                with suppress(Exception):
                    self._try(name, work)
                once.set()
                self._stop.wait(seconds)

        threading.Thread(target=repeat, name=name, daemon=True).start()
        return once

    def _try(self, name: str, work: Callable[[], None]) -> None:
        try:
            work()
        except TpukitError as error:
            self._say(f"{name}: {error}")
        except Exception:
            log.exception("%s failed", name)
