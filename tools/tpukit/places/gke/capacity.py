"""Detect that hosts have no nodes because of missing capacity or quota. Pure.

GKE's cluster autoscaler reports it in events about pods:
`Node scale up in zones us-central2-b associated with this pod failed: GCE out of resources. Pod is at risk of not being
scheduled.`, or `GCE quota exceeded`; its own logs call them GCE_STOCKOUT and GCE_QUOTA_EXCEEDED
(https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-autoscaler-visibility). Controllers that create node
pools for JobSets pass on the messages of Compute Engine.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from tpukit.jobs.reasons import Reason

Doc = Mapping[str, Any]

_FAILED = ("FailedScaleUp", "NodePoolCreationFailed")
_GOES_ON = ("TriggeredScaleUp", "NodePoolCreationStarted", "NodePoolCreationSucceeded")
_PLACED = ("Scheduled",)
_STILL = "in backoff after failed scale-up"
_QUOTA = re.compile(r"quota", re.IGNORECASE)
_STOCKOUT = re.compile(
    r"out of resources|stockout|resource_pool_exhausted|(not have|not) enough resources|no more capacity"
    r"|insufficient (reserved )?capacity",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class Shortage:
    reason: Reason  # NO_CAPACITY or NO_QUOTA
    message: str  # verbatim
    at: float  # when it was last reported, in seconds since the epoch


def shortage(events: Sequence[Doc], names: Collection[str]) -> Shortage | None:
    """Return the newest shortage that still keeps any of these pods, or their JobSet, from getting nodes.

    A shortage ends for a pod when its scale-up is triggered again or when the pod is placed. Scale-ups that failed for
    other reasons than stock and quota are ignored.
    """
    about: dict[str, list[Doc]] = {}
    for event in events:
        name = str(event.get("involvedObject", {}).get("name", ""))
        if name in names:
            about.setdefault(name, []).append(event)
    short = [one for one in map(_of_one, about.values()) if one]
    return max(short, key=lambda one: one.at, default=None)


def _of_one(events: Iterable[Doc]) -> Shortage | None:
    current: Shortage | None = None
    for event in sorted(events, key=_order):
        reason, message = event.get("reason"), str(event.get("message", ""))
        if reason in _GOES_ON or reason in _PLACED:
            current = None
        elif reason in _FAILED and (why := _why(message)):
            current = Shortage(why, message, _when(event))
        elif current and reason == "NotTriggerScaleUp" and _STILL in message:
            current = Shortage(current.reason, current.message, _when(event))
    return current


def _why(message: str) -> Reason | None:
    """Check quota first, because Compute Engine calls both a lack of resources."""
    if _QUOTA.search(message):
        return Reason.NO_QUOTA
    return Reason.NO_CAPACITY if _STOCKOUT.search(message) else None


def _order(event: Doc) -> tuple[float, int]:
    """Order events by time, in whole seconds: within a second, scale-up before its failure, and placement last."""
    reason = event.get("reason")
    return _when(event), 0 if reason in _GOES_ON else 2 if reason in _PLACED else 1


def _when(event: Doc) -> float:
    """Return when the event was last reported. The reporter's library decides which of these fields is set."""
    times = (
        (event.get("series") or {}).get("lastObservedTime"),
        event.get("lastTimestamp"),
        event.get("eventTime"),
        event.get("firstTimestamp"),
        event.get("metadata", {}).get("creationTimestamp"),
    )
    return next((datetime.fromisoformat(text).timestamp() for text in times if text), 0.0)
