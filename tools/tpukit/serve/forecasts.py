"""The queues of the clusters that have active jobs, with the predicted starts, read in the background.

The page shows the last result and never waits for a cluster. Simulations take at most a twentieth of the time.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError
from tpukit.goodput import budgets
from tpukit.jobs.plan import ClusterName
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.kernel.store import Store, everything
from tpukit.places.capabilities import has_queues
from tpukit.places.gke.clusters import Clusters
from tpukit.teams import queue_rows, registry
from tpukit.teams.forecast import records
from tpukit.teams.forecast.outlook import HISTORY_SECONDS, outlook
from tpukit.teams.forecast.predict import Start
from tpukit.teams.queue_rows import JobRow, QueueRow
from tpukit.teams.waiting import Queues

REFRESH_SECONDS = 60.0
HISTORY_REFRESH_SECONDS = 3600.0
SHARE = 20.0
"""Simulations are followed by a pause of at least this many times their duration."""
SAMPLES = 50

Open = Callable[[ClusterName], Queues]


@dataclass(frozen=True, slots=True)
class View:
    """The queues of one cluster."""

    cluster: str
    problem: str = ""
    queues: Sequence[QueueRow] = ()
    jobs: Sequence[JobRow] = ()
    starts: Mapping[str, Start] = field(default_factory=dict)  # by team/job
    at: float = 0.0


class Forecasts:
    """Predictions of this process. Thread-safe."""

    def __init__(self, store: Store, clock: Clock, read: Open | None = None) -> None:
        self._store, self._clock = store, clock
        self._clusters = Clusters(clock)
        self._read = read or self._read_queues
        self._lock = threading.Lock()
        self._busy = threading.Lock()
        self._views: Sequence[View] = ()
        self._next = -math.inf
        self._history: tuple[float, Sequence[Job]] = (-math.inf, ())
        self._simulated = 0.0  # seconds of simulation in the current refresh

    def views(self) -> Sequence[View]:
        """Return the last result, and start a refresh in the background if it is old."""
        with self._lock:
            due = self._clock.monotonic() >= self._next and not self._busy.locked()
            found = self._views
        if due:
            threading.Thread(target=self.refresh, name="forecasts", daemon=True).start()
        return found

    def starts(self) -> Mapping[str, Start]:
        """Return the predicted starts of waiting jobs by team/job."""
        return {name: start for view in self.views() for name, start in view.starts.items()}

    def refresh(self) -> None:
        """Read the queues and predict, unless another thread does so."""
        if not self._busy.acquire(blocking=False):
            return
        try:
            self._simulated = 0.0
            views = self._made()
            with self._lock:
                self._views = views
                self._next = self._clock.monotonic() + max(REFRESH_SECONDS, SHARE * self._simulated)
        except TpukitError:  # the store is unreachable
            with self._lock:
                self._next = self._clock.monotonic() + REFRESH_SECONDS
        finally:
            self._busy.release()

    def keep(self) -> None:
        """Keep a prediction for each waiting job, and compare earlier ones with the actual starts."""
        waiting = [job for job in self._active() if not records.admitted(job)]
        if waiting:
            self.refresh()
        now = self._clock.now()
        for view in self._views if waiting else ():
            records.keep(self._store, view.starts, waiting, now)
        records.score(self._store, now)

    def _made(self) -> Sequence[View]:
        active, now = self._active(), self._clock.now()
        ended = self._ended(now) if active else []
        return [self._view(name, [*ended, *active], now) for name in _clusters(active)]

    def _ended(self, now: float) -> Sequence[Job]:
        """Return the jobs whose durations count. They are read once an hour: there may be thousands."""
        if now - self._history[0] >= HISTORY_REFRESH_SECONDS:
            recent = budgets.recent(self._store, now - HISTORY_SECONDS)
            self._history = now, [job for job in recent if job.state.ended and has_queues(job.place)]
        return self._history[1]

    def _view(self, name: ClusterName, history: Sequence[Job], now: float) -> View:
        shown = name.context or name.server
        try:
            queues = self._read(name)
        except TpukitError as error:
            return View(shown, str(error), at=now)
        began = self._clock.monotonic()
        found = outlook(queues, history, now).predict(samples=SAMPLES)
        self._simulated += self._clock.monotonic() - began
        return View(shown, "", queue_rows.queues_of(queues), queue_rows.jobs(queues), found.starts, now)

    def _read_queues(self, name: ClusterName) -> Queues:
        return registry.read_queues(self._clusters.open(name))[0]

    def _active(self) -> list[Job]:
        listed = (entry.value for entry in everything(self._store, JOBS, states=ACTIVE))
        return [job for job in listed if has_queues(job.place)]


def _clusters(active: Sequence[Job]) -> list[ClusterName]:
    """Return the clusters of these jobs."""
    found: dict[str, ClusterName] = {}
    for job in active:
        known = job.plan.get("cluster")
        if isinstance(known, dict) and isinstance(known.get("server"), str):
            name = ClusterName(str(known.get("context", "")), known["server"], str(known.get("uid", "")))
            found.setdefault(name.uid or name.server, name)
    return list(found.values())
