"""What `tpu serve` counts, as Prometheus reads it: https://prometheus.io/docs/instrumenting/exposition_formats/"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from tpukit.control import Hooks
from tpukit.errors import TpukitError
from tpukit.records import ACTIVE, JOBS, Job
from tpukit.store import Store, everything

_BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
_CONTENT = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """Safe from any thread."""

    content_type = _CONTENT

    def __init__(self, store: Store, holder: str) -> None:
        self._store, self._holder = store, holder
        self._lock = threading.Lock()
        self._rounds = 0
        self._store_errors = 0
        self._troubles: Counter[str] = Counter()
        self._ended: Counter[tuple[str, str]] = Counter()
        self._seconds: dict[str, _Histogram] = {}

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
                *_metric("tpukit_jobs_active", "gauge", "Jobs that have not ended, by state.", active),
                *_metric("tpukit_leases_held", "gauge", "Jobs that this process drives.", leases),
                *_metric("tpukit_rounds_total", "counter", "Rounds over all jobs.", {(): self._rounds}),
                *_metric(
                    "tpukit_troubles_total",
                    "counter",
                    "Errors of jobs and clusters, by class.",
                    {(("class", name),): count for name, count in sorted(self._troubles.items())},
                ),
                *_metric("tpukit_store_errors_total", "counter", "Times the store was away.", {(): self._store_errors}),
                *_metric(
                    "tpukit_jobs_ended_total",
                    "counter",
                    "Jobs that this process saw end, by state and reason.",
                    {
                        (("state", state), ("reason", reason)): count
                        for (state, reason), count in sorted(self._ended.items())
                    },
                ),
                *_metric(
                    "tpukit_api_requests_total",
                    "counter",
                    "Requests to API servers of clusters, by verb and resource.",
                    _api_requests(),
                ),
                *_histograms("tpukit_round_seconds", "How long a round over one group took.", self._seconds),
            ]
        return "".join(f"{line}\n" for line in lines)

    def _from_store(self) -> tuple[Mapping[Any, float], Mapping[Any, float]]:
        """Left out where the store does not answer: a stale number would look like a true one."""
        try:
            states = Counter(entry.value.state for entry in everything(self._store, JOBS, states=ACTIVE))
            held = sum(1 for lease in self._store.leases() if lease.holder.name == self._holder)
        except TpukitError:
            self.store_error()
            return {}, {}
        return {(("state", state),): states[state] for state in ACTIVE}, {(): held}

    def _timed(self, group: str, seconds: float) -> None:
        with self._lock:
            self._seconds.setdefault(group, _Histogram()).add(seconds)

    def _failed(self, _name: str, error: Exception) -> None:
        with self._lock:
            self._troubles[type(error).__name__] += 1

    def _job_ended(self, job: Job) -> None:
        with self._lock:
            self._ended[str(job.state), str(job.reason or "")] += 1


class _Histogram:
    def __init__(self) -> None:
        self.counts = [0] * (len(_BUCKETS) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[sum(1 for bound in _BUCKETS if seconds > bound)] += 1
        self.total += seconds


def _api_requests() -> Mapping[tuple[tuple[str, str], ...], float]:
    from tpukit.kube.requests import REQUESTS

    return {
        (("verb", verb), ("resource", resource)): count for (verb, resource), count in sorted(REQUESTS.counts().items())
    }


def _metric(name: str, kind: str, text: str, values: Mapping[tuple[tuple[str, str], ...], float]) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{_labels(labels)} {value}"


def _histograms(name: str, text: str, groups: Mapping[str, _Histogram]) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} histogram"
    for group, histogram in sorted(groups.items()):
        running = 0
        for bound, count in zip((*_BUCKETS, "+Inf"), histogram.counts, strict=True):
            running += count
            yield f"{name}_bucket{_labels((('group', group), ('le', str(bound))))} {running}"
        yield f"{name}_sum{_labels((('group', group),))} {histogram.total}"
        yield f"{name}_count{_labels((('group', group),))} {running}"


def _labels(pairs: tuple[tuple[str, str], ...]) -> str:
    if not pairs:
        return ""
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
