"""The service behind `tpu queue serve`: workers that fetch jobs, and the supervisor beside them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Sequence

from tpukit.code_queue.driver import Driver
from tpukit.code_queue.records import ACTIVE, RUNNING, TPU_JOBS, QueuedJob
from tpukit.code_queue.worker import Worker
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError
from tpukit.kernel import Hooks
from tpukit.kernel.exposition import CONTENT_TYPE, Histogram, metric
from tpukit.kernel.loop import Loop
from tpukit.kernel.store import Store, everything

Labelled = dict[tuple[tuple[str, str], ...], float]


class Service:
    """Workers and supervisor. `run` is called once, in any thread; all other methods are thread-safe."""

    def __init__(
        self,
        store: Store,
        driver: Driver,
        workers: Sequence[Worker],
        clock: Clock,
        *,
        tick: float,
        say: Callable[[str], None],
        metrics: Metrics,
    ) -> None:
        self._store, self._driver, self._workers = store, driver, workers
        self._threads: list[threading.Thread] = []
        self.loop = Loop(
            self._round,
            clock,
            lambda: tick,
            say,
            store="the store",
            meanwhile="running code continues; ",
            passed=metrics.round,
            failed=metrics.store_error,
            kernel=driver.kernel,
        )

    def run(self, *, until_idle: bool = False) -> None:
        unwatch = self._watch()
        self._threads = [
            threading.Thread(target=worker.run, name=f"worker {number}", daemon=True)
            for number, worker in enumerate(self._workers)
        ]
        try:
            for thread in self._threads:
                thread.start()
            self.loop.run(until_idle=until_idle)
        finally:
            unwatch()

    def stop(self, seconds: float) -> None:
        """Stop; workers may complete the job that they run, or return it to the queue."""
        for worker in self._workers:
            worker.leave()
        for thread in self._threads:
            thread.join(seconds)
        self.loop.stop()

    def _round(self) -> int:
        return self._driver.round() + sum(worker.busy for worker in self._workers)

    def _watch(self) -> Callable[[], None]:
        def wake() -> None:
            self.loop.wake()
            for worker in self._workers:
                worker.wake()

        try:
            return self._store.watch(TPU_JOBS, wake)
        except TpukitError:  # without the hint, changes are seen one tick later
            return lambda: None


class Metrics:
    content_type = CONTENT_TYPE

    def __init__(self, store: Store, leading: Callable[[], bool], now: Callable[[], float]) -> None:
        self._store, self._leading, self._now = store, leading, now
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()
        self._troubles: Counter[str] = Counter()
        self._rounds = Histogram()

    def hooks(self) -> Hooks:
        return Hooks(timed=lambda group, seconds: self._rounds.add(seconds), failed=self._failed)

    def round(self) -> None:
        with self._lock:
            self._counts["rounds"] += 1

    def store_error(self) -> None:
        with self._lock:
            self._counts["store errors"] += 1

    def _failed(self, name: str, error: Exception) -> None:
        with self._lock:
            self._troubles[type(error).__name__] += 1

    def text(self) -> str:
        jobs: list[QueuedJob] = []
        try:
            jobs = [entry.value for entry in everything(self._store, TPU_JOBS, states=ACTIVE)]
        except TpukitError:
            self.store_error()
        states = Counter(str(job.status) for job in jobs)
        now = self._now()
        oldest = max((now - job.created_at for job in jobs if job.status != RUNNING), default=0.0)
        longest = max((now - job.started_at for job in jobs if job.status == RUNNING), default=0.0)
        with self._lock:
            rounds, errors = self._counts["rounds"], self._counts["store errors"]
            troubles: Labelled = {(("class", name),): float(count) for name, count in sorted(self._troubles.items())}
        name = "tpukit_queue"
        active: Labelled = {(("status", state),): float(states[state]) for state in ACTIVE}
        lines = [
            *metric(f"{name}_jobs", "gauge", "Jobs that have not ended, by status.", active),
            *metric(f"{name}_oldest_seconds", "gauge", "Age of the oldest job that waits.", {(): oldest}),
            *metric(f"{name}_longest_seconds", "gauge", "Running time of the longest-running job.", {(): longest}),
            *metric(f"{name}_leader", "gauge", "Whether this process supervises.", {(): float(self._leading())}),
            *metric(f"{name}_rounds_total", "counter", "Rounds over all jobs.", {(): float(rounds)}),
            *metric(f"{name}_store_errors_total", "counter", "Times the store was unreachable.", {(): float(errors)}),
            *metric(f"{name}_troubles_total", "counter", "Errors of jobs, by class.", troubles),
        ]
        return "".join(f"{line}\n" for line in lines)
