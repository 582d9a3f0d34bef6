"""The service of `tpu serve`: rounds over all jobs, with sweeping, housekeeping and a mirror in background threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError
from tpukit.jobs.controller.driver import Driver
from tpukit.jobs.records import JOBS
from tpukit.kernel.loop import Loop
from tpukit.kernel.store import Store
from tpukit.serve.metrics import Metrics

SWEEP_SECONDS = 60.0
"""Interval of sweeps: an object is removed only after it was seen twice over a minimum age."""
HOUSEKEEPING_SECONDS = 3600.0
MIRROR_SECONDS = 300.0
PRESENCE_SECONDS = 60.0
PREDICTIONS_SECONDS = 60.0
NOTICES_SECONDS = 30.0
SETTLE_SECONDS = 5.0


class Service:
    """The daemon. Call `run` once, in any thread; the other methods are thread-safe."""

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
        mirror: Callable[[], None] | None = None,
        presence: Callable[[], None] | None = None,
        predictions: Callable[[], None] | None = None,
        notices: Callable[[], None] | None = None,
    ) -> None:
        """Create the service.

        `mirror` copies the store's contents elsewhere; `presence` notes that it runs; `predictions` keeps predicted
        starts and scores earlier ones; `notices` sends what is due.
        """
        self._store, self._driver, self._say = store, driver, say
        self._beside = [
            ("housekeeping", housekeeping, HOUSEKEEPING_SECONDS),
            ("mirror", mirror, MIRROR_SECONDS),
            ("presence", presence, PRESENCE_SECONDS),
            ("predictions", predictions, PREDICTIONS_SECONDS),
            ("notices", notices, NOTICES_SECONDS),
        ]
        self.loop = Loop(
            self._round,
            clock,
            lambda: tick,
            say,
            store="the store",
            meanwhile="jobs keep running; ",
            passed=metrics.round,
            failed=metrics.store_error,
            kernel=driver.kernel,
        )

    def run(self, *, until_idle: bool = False) -> None:
        swept = self.loop.beside("sweep", self._sweep, SWEEP_SECONDS)
        for name, work, seconds in self._beside:
            if work:
                self.loop.beside(name, work, seconds)
        unwatch = self._watch()
        try:
            self.loop.run(until_idle=until_idle)
            if until_idle:
                self._driver.kernel.settle(SETTLE_SECONDS)
                swept.wait(SETTLE_SECONDS)
        finally:
            unwatch()

    def stop(self) -> None:
        self.loop.stop()

    def alive(self) -> bool:
        """Return True while rounds start and finish. An unreachable store is no reason for a restart."""
        return self.loop.alive()

    def hanging(self) -> Mapping[str, float]:
        """Return the calls that have not returned, with the seconds since."""
        return self.loop.hanging()

    def ready(self) -> bool:
        """Return True if the store responds and a round completed recently."""
        return self.loop.ready()

    def _round(self) -> int:
        """Run one round and return the number of remaining jobs that can be driven from here."""
        self._driver.round()
        return self._driver.kernel.drivable

    def _watch(self) -> Callable[[], None]:
        try:
            return self._store.watch(JOBS, self.loop.wake)
        except TpukitError:  # without the watch, a change is seen one tick later
            return lambda: None

    def _sweep(self) -> None:
        for name in self._driver.sweep():
            self._say(f"removed {name}, which belongs to no active job")
