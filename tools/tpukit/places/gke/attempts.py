"""Find the attempt that a JobSet is at, from counters in the cluster. Pure.

One JobSet lives through many attempts: JobSet restarts it, Kueue evicts and readmits it. Both are counted. An attempt
is the time between two of these events, identified by the JobSet's uid and the counters at its beginning. So any number
of events may happen while no driver watches: each ends one attempt, and none is seen twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from tpukit.places.gke.jobsets import JobSetState


@dataclass(frozen=True, slots=True)
class Position:
    """The counters at which an attempt began."""

    uid: str
    restarts: int = 0
    evictions: int = 0
    counted: int = 0  # restarts that the user's budget paid for
    workload: str = ""  # uid of the Workload that counts the evictions; empty: not seen yet

    @staticmethod
    def of(learned: Mapping[str, Any]) -> Position | None:
        if not learned.get("uid"):
            return None
        restarts, evictions, counted = (int(learned.get(name) or 0) for name in ("restarts", "evictions", "counted"))
        return Position(str(learned["uid"]), restarts, evictions, counted, str(learned.get("workload") or ""))

    @staticmethod
    def now(state: JobSetState) -> Position:
        return Position(state.uid, state.restarts, state.evictions, state.counted, _workload(state))

    def learned(self) -> dict[str, Any]:
        return {
            "uid": self.uid,
            "restarts": self.restarts,
            "evictions": self.evictions,
            "counted": self.counted,
            **({"workload": self.workload} if self.workload else {}),
        }


class Where(StrEnum):
    """The relation of the existing JobSet to an attempt."""

    CURRENT = "current"  # it is at this attempt
    OVERTAKEN = "overtaken"  # it is at a later attempt, which it began by itself
    OLDER = "older"  # it was created for an earlier attempt and must be removed
    NEWER = "newer"  # it was created for a later attempt, unknown to this record
    GONE = "gone"  # the attempt's own JobSet no longer exists
    NOT_MADE = "not made"  # none exists, and none was seen


def locate(number: int, known: Position | None, state: JobSetState, *, began: bool = False) -> tuple[Where, Position]:
    """Return where the JobSet is relative to attempt `number`, and the position at which the attempt began.

    `began`: it is recorded as running by a version that stored no positions; then it is whatever runs.
    """
    if state.jobset is None:
        return (Where.GONE, known) if known else (Where.NOT_MADE, Position(""))
    if known is None and began and state.made_for < number:
        known = Position.now(state)
    if known is None or known.uid != state.uid:
        if state.made_for > number:
            return Where.NEWER, known or Position("")
        if state.made_for < number:
            return (Where.OLDER, known or Position(""))
        known = Position(state.uid)  # made for this attempt: it began with the JobSet
    if workload := _workload(state):
        anew = known.workload not in ("", workload)  # Kueue created another one, with new counters
        known = replace(known, workload=workload, evictions=0 if anew else min(known.evictions, state.evictions))
    if state.restarts > known.restarts or state.evictions > known.evictions:
        return Where.OVERTAKEN, known
    return Where.CURRENT, known


class Event(StrEnum):
    """The event that ended an overtaken attempt."""

    EVICTED = "evicted"
    HARDWARE = "hardware"  # a restart that is not charged
    USER = "user"  # a restart that is charged to the user's budget


def next_event(began: Position, state: JobSetState) -> tuple[Event, Position, bool]:
    """Return the first event after `began`, the position behind it, and whether the JobSet is there now.

    The order of events is unknown. Uncharged events are assumed first, so that a budget is never spent too early.
    """
    if state.evictions > began.evictions:
        event, after = Event.EVICTED, replace(began, evictions=began.evictions + 1)
    elif state.restarts - began.restarts > max(0, state.counted - began.counted):
        event, after = Event.HARDWARE, replace(began, restarts=began.restarts + 1)
    else:
        event, after = Event.USER, replace(began, restarts=began.restarts + 1, counted=began.counted + 1)
    last = state.restarts <= after.restarts and state.evictions <= after.evictions
    return event, after, last


def _workload(state: JobSetState) -> str:
    return str(state.workload["metadata"].get("uid", "")) if state.workload else ""
