"""Data sources of the page: the store, the places, and results shared by several readers for a moment."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeVar

from tpukit.core.clock import Clock
from tpukit.goodput import budgets
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.kernel.store import Store, everything
from tpukit.places.base import Place
from tpukit.serve.forecasts import Forecasts
from tpukit.teams.forecast.predict import Start

T = TypeVar("T")
SHARED_SECONDS = 1.0
"""Seconds for which readers share a result, so that many readers cost the store as little as one."""
SUMS_SECONDS = 30.0
JOBS_A_PAGE = 100


@dataclass(slots=True)
class Site:
    store: Store
    places: Mapping[str, Place]
    clock: Clock
    owner: str
    is_driven: bool = True  # this process drives jobs
    forecasts: Forecasts | None = None
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _answers: dict[str, tuple[float, object]] = field(default_factory=dict)

    def shared(self, name: str, seconds: float, make: Callable[[], T]) -> T:
        """Return a shared result younger than `seconds`, or call `make`. Only one thread calls it at a time."""
        with self._lock:
            lock = self._locks.setdefault(name, threading.Lock())
        with lock:
            made = self._answers.get(name)
            now = self.clock.monotonic()
            if made is None or now - made[0] >= seconds:
                made = self._answers[name] = now, make()
            return made[1]  # type: ignore[return-value]

    def active(self) -> list[Job]:
        return self.shared(
            "active", SHARED_SECONDS, lambda: [one.value for one in everything(self.store, JOBS, states=ACTIVE)]
        )

    def starts(self) -> Mapping[str, Start]:
        """Return the predicted starts of waiting jobs by team/job."""
        return self.forecasts.starts() if self.forecasts else {}

    def newest(self) -> list[Job]:
        """Return the newest jobs, including ended ones."""
        page = self.shared("newest", SHARED_SECONDS, lambda: self.store.list(JOBS, newest=True, limit=JOBS_A_PAGE))
        return [entry.value for entry in page.entries]

    def recent(self, since: float) -> list[Job]:
        """Return the jobs that may have spent time after `since`, up to half a minute stale."""
        jobs = self.shared("recent", SUMS_SECONDS, lambda: budgets.recent(self.store, since))
        return [job for job in jobs if not job.ended or job.ended >= since]
