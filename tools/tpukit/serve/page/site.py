"""What the page is made from: the store, the places, and answers that several readers share for a moment."""

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

T = TypeVar("T")
SHARED_SECONDS = 1.0
"""For how long an answer is shown to other readers too: the store is read as often for one as for many."""
SUMS_SECONDS = 30.0
JOBS_A_PAGE = 100


@dataclass(slots=True)
class Site:
    store: Store
    places: Mapping[str, Place]
    clock: Clock
    owner: str
    is_driven: bool = True  # this process drives jobs
    _lock: threading.Lock = field(default_factory=threading.Lock)
    _locks: dict[str, threading.Lock] = field(default_factory=dict)
    _answers: dict[str, tuple[float, object]] = field(default_factory=dict)

    def shared(self, name: str, seconds: float, make: Callable[[], T]) -> T:
        """Return what `make` gave less than so many seconds ago, or gives now. Only one thread makes it."""
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

    def newest(self) -> list[Job]:
        """Return the newest jobs, ended ones included."""
        page = self.shared("newest", SHARED_SECONDS, lambda: self.store.list(JOBS, newest=True, limit=JOBS_A_PAGE))
        return [entry.value for entry in page.entries]

    def recent(self, since: float) -> list[Job]:
        """Return the jobs that may have spent time after `since`, as they were up to half a minute ago."""
        jobs = self.shared("recent", SUMS_SECONDS, lambda: budgets.recent(self.store, since))
        return [job for job in jobs if not job.ended or job.ended >= since]
