"""Metrics of `tpu serve` in Prometheus format.

https://prometheus.io/docs/instrumenting/exposition_formats/
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any

from tpukit.core.errors import TpukitError
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.kernel import Hooks
from tpukit.kernel.exposition import CONTENT_TYPE, Histogram, histograms, metric
from tpukit.kernel.store import Store, everything


class Metrics:
    """Counters and gauges of one process; thread-safe."""

    content_type = CONTENT_TYPE

    def __init__(self, store: Store, holder: str) -> None:
        self._store, self._holder = store, holder
        self._lock = threading.Lock()
        self._rounds = 0
        self._store_errors = 0
        self._troubles: Counter[str] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, Histogram] = {}

    def hooks(self) -> Hooks:
        return Hooks(timed=self._timed, failed=self._failed, ended=self._job_ended)

    def round(self) -> None:
        with self._lock:
            self._rounds += 1

    def store_error(self) -> None:
        with self._lock:
            self._store_errors += 1

    def text(self) -> str:
        active, leases = self._from_store()
        with self._lock:
            lines = [
                *metric("tpukit_jobs_active", "gauge", "Jobs that have not ended, by state.", active),
                *metric("tpukit_leases_held", "gauge", "Jobs that this process drives.", leases),
                *metric("tpukit_rounds_total", "counter", "Rounds over all jobs.", {(): self._rounds}),
                *metric(
                    "tpukit_troubles_total",
                    "counter",
                    "Errors of jobs and clusters, by class.",
                    {(("class", name),): count for name, count in sorted(self._troubles.items())},
                ),
                *metric(
                    "tpukit_store_errors_total", "counter", "Times the store was unreachable.", {(): self._store_errors}
                ),
                *metric(
                    "tpukit_jobs_ended_total",
                    "counter",
                    "Jobs that this process saw end, by state and reason.",
                    {
                        (("state", state), ("reason", reason)): count
                        for (state, reason), count in sorted(self._ended.items())
                    },
                ),
                *metric(
                    "tpukit_api_requests_total",
                    "counter",
                    "Requests to API servers of clusters, by verb and resource.",
                    _api_requests(),
                ),
                *histograms("tpukit_round_seconds", "Duration of a round over one group, in seconds.", self._seconds),
            ]
        return "".join(f"{line}\n" for line in lines)

    def _from_store(self) -> tuple[Mapping[Any, float], Mapping[Any, float]]:
        """Return job and lease counts, or nothing if the store is unreachable: stale numbers would look true."""
        try:
            states = Counter(entry.value.state for entry in everything(self._store, JOBS, states=ACTIVE))
            held = sum(
                1
                for lease in self._store.leases()
                if lease.name.startswith(f"{JOBS.name}/") and lease.holder.name == self._holder
            )
        except TpukitError:
            self.store_error()
            return {}, {}
        return {(("state", state),): states[state] for state in ACTIVE}, {(): held}

    def _timed(self, group: str, seconds: float) -> None:
        with self._lock:
            self._seconds.setdefault(group, Histogram()).add(seconds)

    def _failed(self, _name: str, error: Exception) -> None:
        with self._lock:
            self._troubles[type(error).__name__] += 1

    def _job_ended(self, job: Job) -> None:
        with self._lock:
            self._ended[str(job.state), str(job.reason or "")] += 1


def _api_requests() -> Mapping[tuple[tuple[str, str], ...], float]:
    from tpukit.kube.requests import REQUESTS

    return {
        (("verb", verb), ("resource", resource)): count for (verb, resource), count in sorted(REQUESTS.counts().items())
    }
