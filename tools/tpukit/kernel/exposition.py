"""Metrics in the Prometheus format: https://prometheus.io/docs/instrumenting/exposition_formats/."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
BUCKETS = (0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0)
"""Histogram bounds in seconds, for short calls."""


class Histogram:
    def __init__(self, bounds: Sequence[float] = BUCKETS) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0.0

    def add(self, seconds: float) -> None:
        self.counts[sum(1 for bound in self.bounds if seconds > bound)] += 1
        self.total += seconds


def metric(name: str, kind: str, text: str, values: Mapping[tuple[tuple[str, str], ...], float]) -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} {kind}"
    for labels, value in values.items():
        yield f"{name}{_labels(labels)} {value}"


def histograms(name: str, text: str, groups: Mapping[str, Histogram], label: str = "group") -> Iterable[str]:
    yield f"# HELP {name} {text}"
    yield f"# TYPE {name} histogram"
    for group, histogram in sorted(groups.items()):
        running = 0
        for bound, count in zip((*histogram.bounds, "+Inf"), histogram.counts, strict=True):
            running += count
            yield f"{name}_bucket{_labels(((label, group), ('le', str(bound))))} {running}"
        yield f"{name}_sum{_labels(((label, group),))} {histogram.total}"
        yield f"{name}_count{_labels(((label, group),))} {running}"


def _labels(pairs: tuple[tuple[str, str], ...]) -> str:
    if not pairs:
        return ""
    inner = ",".join(f'{name}="{_escaped(value)}"' for name, value in pairs)
    return f"{{{inner}}}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
