"""Events of GKE's cluster autoscaler on pods, with GKE's texts.

The texts are those in public reports from GKE, such as https://github.com/2i2c-org/infrastructure/issues/2185
(triggered, not triggered) and https://github.com/kubernetes/autoscaler/issues/5692 (not triggered). `Node scale up in
zones Z associated with this pod failed: GCE out of resources. Pod is at risk of not being scheduled.` and the same with
`GCE quota exceeded` are in many public reports of FailedScaleUp. In GKE's own logs the two are GCE_STOCKOUT and
GCE_QUOTA_EXCEEDED. https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-autoscaler-visibility
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from tpubox.kubelet.times import stamp
from tpukit.core.clock import Clock
from tpukit.kube import Cluster

COMPONENT = "cluster-autoscaler"
GCE_STOCKOUT = "GCE out of resources"
GCE_QUOTA_EXCEEDED = "GCE quota exceeded"
INTERNAL = "Internal error"
REPEAT_SECONDS = 60.0
"""Seconds between repetitions of an event that is still true: GKE's interval is a guess."""


@dataclass(frozen=True, slots=True)
class Said:
    reason: str
    message: str
    type: str = "Normal"


def triggered(group: str, size: int, target: int, most: int) -> Said:
    return Said("TriggeredScaleUp", f"pod triggered scale-up: [{{{group} {size}->{target} (max: {most})}}]")


def failed(zone: str, why: str) -> Said:
    text = f"Node scale up in zones {zone} associated with this pod failed: {why}."
    return Said("FailedScaleUp", f"{text} Pod is at risk of not being scheduled.", "Warning")


def not_triggered(reasons: Iterable[str]) -> Said:
    counted = ", ".join(f"{count} {reason}" for reason, count in sorted(Counter(reasons).items()))
    return Said("NotTriggerScaleUp", f"pod didn't trigger scale-up: {counted}")


class Recorder:
    """A writer of events about pods: repeated events increase a count."""

    def __init__(self, cluster: Cluster, clock: Clock) -> None:
        self._cluster = cluster
        self._clock = clock
        self._last: dict[str, tuple[float, float, int]] = {}  # by name: first and last time, count

    def record(self, pod: Mapping[str, Any], said: Said) -> None:
        metadata = pod["metadata"]
        mark = zlib.crc32(f"{metadata['uid']} {said.reason} {said.message}".encode())
        name = f"{metadata['name']}.{mark:016x}"
        now = self._clock.now()
        first, last, count = self._last.get(name, (now, now, 0))
        if count and said.reason == "NotTriggerScaleUp" and now - last < REPEAT_SECONDS:
            return
        self._last[name] = (first, now, count + 1)
        about = {key: metadata[key] for key in ("name", "namespace", "uid") if key in metadata}
        self._cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Event",
                "metadata": {"name": name, "namespace": metadata.get("namespace", "default")},
                "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
                "reason": said.reason,
                "message": said.message,
                "type": said.type,
                "source": {"component": COMPONENT},
                "reportingComponent": COMPONENT,
                "reportingInstance": "",
                "firstTimestamp": stamp(first),
                "lastTimestamp": stamp(now),
                "count": count + 1,
            },
            manager=COMPONENT,
        )
