"""The provisioner's Prometheus metrics."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping

from tpukit.google.gke import Operation
from tpukit.kernel import Hooks
from tpukit.kernel.exposition import CONTENT_TYPE, Histogram, histograms, metric
from tpukit.kube.requests import REQUESTS
from tpukit.provisioner import failures
from tpukit.provisioner.decide import Step
from tpukit.provisioner.driver import Counting

_BOUNDS = (30.0, 60.0, 120.0, 300.0, 600.0, 1200.0, 1800.0, 3600.0, 7200.0)
"""Bucket bounds for the seconds until a slice is ready."""
_ACTS = {"CREATE_NODE_POOL": "create", "DELETE_NODE_POOL": "delete"}


class Metrics:
    """Counters. Safe from any thread."""

    content_type = CONTENT_TYPE

    def __init__(self, leading: Callable[[], bool], now: Callable[[], float]) -> None:
        self._leading, self._now = leading, now
        self._lock = threading.Lock()
        self._states: Counter[str] = Counter()
        self._decisions: Counter[str] = Counter()
        self._calls: Counter[tuple[str, str]] = Counter()
        self._operations: Counter[tuple[str, str]] = Counter()
        self._troubles: Counter[str] = Counter()
        self._rounds = self._failed_rounds = 0
        self._ready = Histogram(_BOUNDS)
        self._seconds: dict[str, Histogram] = {}

    def hooks(self) -> Hooks:
        return Hooks(timed=self._timed, failed=self._failed)

    def round(self) -> None:
        with self._lock:
            self._rounds += 1

    def failed_round(self) -> None:
        with self._lock:
            self._failed_rounds += 1

    def counting(self) -> Counting:
        return Counting(self._decided, self._announced, self._called, self._finished)

    def _decided(self, steps: Mapping[str, Step]) -> None:
        with self._lock:
            self._states = Counter(step.state for step in steps.values())

    def _announced(self, step: Step | None, reason: str) -> None:
        """Count a decision when it is announced: until then, each observation makes it again."""
        with self._lock:
            self._decisions[reason] += 1
            if reason == "NodePoolReady" and step and step.owner:
                self._ready.add(self._now() - step.owner.since)

    def _called(self, act: str, outcome: str) -> None:
        with self._lock:
            self._calls[act, outcome] += 1

    def _finished(self, operation: Operation) -> None:
        if operation.kind in _ACTS:
            outcome = failures.kind_of(operation.error) if operation.error else "ok"
            with self._lock:
                self._operations[_ACTS[operation.kind], outcome] += 1

    def text(self) -> str:
        with self._lock:
            calls = _pairs("act", "outcome", self._calls)
            operations = _pairs("act", "outcome", self._operations)
            requests = _pairs("verb", "resource", REQUESTS.counts())
            leading: dict[tuple[tuple[str, str], ...], float] = {(): int(self._leading())}
            lines = [
                *metric("tpukit_provisioner_leading", "gauge", "1 if this replica is the leader.", leading),
                *metric(
                    "tpukit_provisioner_pools",
                    "gauge",
                    "Pools that exist or are needed, by state.",
                    {(("state", state),): count for state, count in sorted(self._states.items())},
                ),
                *metric(
                    "tpukit_provisioner_decisions_total",
                    "counter",
                    "Decisions, by reason.",
                    {(("reason", reason),): count for reason, count in sorted(self._decisions.items())},
                ),
                *metric("tpukit_provisioner_calls_total", "counter", "Calls to GKE, by result.", calls),
                *metric(
                    "tpukit_provisioner_operations_total", "counter", "Finished operations, by outcome.", operations
                ),
                *metric(
                    "tpukit_provisioner_troubles_total",
                    "counter",
                    "Errors of pools, by class.",
                    {(("class", name),): count for name, count in sorted(self._troubles.items())},
                ),
                *metric("tpukit_provisioner_rounds_total", "counter", "Rounds over all pools.", {(): self._rounds}),
                *metric(
                    "tpukit_provisioner_failed_rounds_total",
                    "counter",
                    "Rounds in which GKE or the API server was unreachable.",
                    {(): self._failed_rounds},
                ),
                *metric("tpukit_api_requests_total", "counter", "Requests to the API server.", requests),
                *histograms(
                    "tpukit_provisioner_ready_seconds",
                    "Seconds from an unschedulable pod to the pool that takes it.",
                    {"cluster": self._ready},
                ),
                *histograms("tpukit_round_seconds", "Duration of a round in seconds.", self._seconds),
            ]
        return "".join(f"{line}\n" for line in lines)

    def _timed(self, group: str, seconds: float) -> None:
        with self._lock:
            self._seconds.setdefault(group, Histogram()).add(seconds)

    def _failed(self, _name: str, error: Exception) -> None:
        with self._lock:
            self._troubles[type(error).__name__] += 1


def _pairs(
    first: str, second: str, counts: Mapping[tuple[str, str], int]
) -> Mapping[tuple[tuple[str, str], ...], float]:
    return {((first, one), (second, other)): count for (one, other), count in sorted(counts.items())}
