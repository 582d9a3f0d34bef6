"""Why an attempt ended, told from all its hosts together. Pure.

One host's exit code is not enough: when a host fails, all its peers end too, most of them with 134 (JAX aborts), some
with the 1 of an uncaught network error. The verdict belongs to the first host that failed by itself.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpukit.reasons import Reason

ABORTED, KILLED, TOLD = 134, 137, 143

# What JAX and gloo print when the other end of a connection is gone.
_PEER_GONE = re.compile(
    r"connection closed by peer|connection reset by peer|connection refused|socket closed|broken pipe"
    r"|coordination (service|agent)|heartbeat timeout|gloo.*(timed? ?out|failed)|peer.*(unavailable|disconnected)"
    r"|preemption sync|barrier.*(failed|timed out)",
    re.IGNORECASE,
)
_CLUES: tuple[tuple[re.Pattern[str], Reason], ...] = (
    (re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE), Reason.DISK_FULL),
    (re.compile(r"address already in use|errno 98\b|eaddrinuse", re.IGNORECASE), Reason.PORT_IN_USE),
    (
        re.compile(r"resource_exhausted.*memory|out of memory|memoryerror|bad_alloc", re.IGNORECASE),
        Reason.OUT_OF_MEMORY,
    ),
)


@dataclass(frozen=True, slots=True)
class HostEnd:
    host: str
    code: int
    order: float = 0.0  # when it ended, on a clock that all hosts share
    lost: bool = False  # it vanished without an exit code
    told: bool = False  # it ended after we told it to leave
    error: str = ""  # what kept it from starting
    out_of_memory: bool = False
    disk_full: bool = False
    taken: Reason | None = None  # the place says that its hardware went, and why
    how: str = ""  # in the place's words
    tail: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    reason: Reason
    host: str = ""
    detail: str = ""


def verdict(ends: Sequence[HostEnd]) -> Verdict:
    """`ends` has every host of the attempt."""
    if all(end.code == 0 and not end.lost for end in ends):
        return Verdict(Reason.DONE)
    by_time = sorted(ends, key=lambda end: (end.order, end.host))
    for culprit in (_unstarted, _taken, _failed, _told_by_others, _hung, _peerless):
        found = culprit(by_time)
        if found is not None:
            return found
    return Verdict(Reason.CANCELLED)


def _unstarted(ends: Sequence[HostEnd]) -> Verdict | None:
    for end in ends:
        if end.error:
            reason = _clue([end.error]) or Reason.BAD_COMMAND
            return Verdict(reason, end.host, end.error)
    return None


def _taken(ends: Sequence[HostEnd]) -> Verdict | None:
    """Killed from outside: no program ends itself this way."""
    for end in ends:
        if end.taken:
            return Verdict(end.taken, end.host, end.how)
    for end in ends:
        if end.lost or (end.code == KILLED and not end.told):
            if end.out_of_memory:
                return Verdict(Reason.OUT_OF_MEMORY, end.host)
            how = "it left no exit code (killed with its terminal or session?)" if end.lost else "killed by signal 9"
            return Verdict(Reason.HOST_LOST, end.host, how)
    return None


def _failed(ends: Sequence[HostEnd]) -> Verdict | None:
    alone = len(ends) == 1
    for end in ends:
        follower = end.code in (ABORTED, TOLD) or (not alone and _PEER_GONE.search("\n".join(end.tail)) is not None)
        if end.code == 0 or end.told or (follower and not (alone and end.code == ABORTED)):
            continue
        reason = (Reason.DISK_FULL if end.disk_full else None) or _clue(end.tail) or Reason.USER_ERROR
        return Verdict(reason, end.host, _last_words(end))
    return None


def _told_by_others(ends: Sequence[HostEnd]) -> Verdict | None:
    """143 is the answer to being told to leave, and it was not us who said it."""
    for end in ends:
        if end.code == TOLD and not end.told:
            return Verdict(Reason.PREEMPTED, end.host)
    return None


def _hung(ends: Sequence[HostEnd]) -> Verdict | None:
    """Its peers gave it up, and it had to be killed."""
    if any(end.code not in (0,) and not end.told for end in ends):
        for end in ends:
            if end.told and end.code == KILLED:
                return Verdict(Reason.HANG, end.host, "it had to be killed after its peers gave it up")
    return None


def _peerless(ends: Sequence[HostEnd]) -> Verdict | None:
    for end in ends:
        if end.code != 0 and not end.told:
            return Verdict(Reason.PEER_LOST, end.host)
    return None


def _clue(lines: Sequence[str]) -> Reason | None:
    text = "\n".join(lines)
    return next((reason for pattern, reason in _CLUES if pattern.search(text)), None)


def _last_words(end: HostEnd) -> str:
    said = next((line.strip() for line in reversed(end.tail) if line.strip()), "")
    return f"exit code {end.code}" + (f", {said[:200]!r}" if said else "")
