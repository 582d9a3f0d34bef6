"""Find why an attempt ended, from all its hosts together. Pure.

One host's exit code is not enough: when a host fails, all its peers end too, most of them with 134 (JAX aborts), some
with the 1 of an uncaught network error. The verdict belongs to the first host that failed by itself, which log_tail.py
identifies. Only if none did, the hosts lost each other.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass

from tpukit.jobs.reasons import Reason
from tpukit.places import log_tail
from tpukit.places.log_tail import Cause, Reading

ABORTED, KILLED, TERMINATED = 134, 137, 143
_POLITE = "after SIGTERM, it ended with exit code 0 before it reported that it was done"

_PORT = re.compile(r"address already in use|errno 98\b|eaddrinuse", re.IGNORECASE)
_REFUSED = r"(?:permission denied|operation not permitted)"
_DENIED = re.compile(
    # Chips are /dev/accel* or /dev/vfio/*, and pinning their memory takes a raised limit of locked memory:
    # https://github.com/google/gvisor/issues/11545, https://cloud.google.com/kubernetes-engine/docs/concepts/tpus
    rf"/dev/(?:vfio/|accel).*{_REFUSED}|{_REFUSED}.*/dev/(?:vfio/|accel)|tpu initialization failed.*{_REFUSED}"
    r"|rlimit_memlock|locked.?memory limit|(?:vfio|tpu).*cannot allocate memory",
    re.IGNORECASE,
)
_CLUES: tuple[tuple[re.Pattern[str], Reason], ...] = (
    (_DENIED, Reason.CHIPS_DENIED),
    (re.compile(r"no space left on device|disk quota exceeded", re.IGNORECASE), Reason.DISK_FULL),
    (_PORT, Reason.PORT_IN_USE),
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
    signalled_by_us: bool = False  # it ended after we sent it SIGTERM
    error: str = ""  # why it could not start
    out_of_memory: bool = False
    disk_full: bool = False
    there: bool = False  # the place sees its hardware, and the host answers
    taken: Reason | None = None  # the place reports that its hardware was lost, and why
    how: str = ""  # as the place reports it
    own_port: int = 0  # the port that tpukit chose for JAX's coordinator; 0: it chose none
    finished: bool = False  # by its log before the request to stop, it had finished
    tail: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Verdict:
    reason: Reason
    host: str = ""
    detail: str = ""


def verdict(hosts: Sequence[HostEnd]) -> Verdict:
    """Return the verdict. `hosts` has every host of the attempt."""
    if all(end.code == 0 and not end.lost for end in hosts):
        return _left_early(hosts) or Verdict(Reason.DONE)
    by_time = sorted(hosts, key=lambda end: (end.order, end.host))
    for explain in (_unstarted, _taken, _port_lost, _failed, _terminated, _hung, _peer_lost):
        explained = explain(by_time)
        if explained is not None:
            return explained
    return Verdict(Reason.CANCELLED)


def _left_early(hosts: Sequence[HostEnd]) -> Verdict | None:
    """Return a verdict on programs that all exited with 0 on request, as trainers stop their hosts together."""
    if any(end.finished for end in hosts):
        return None
    for end in sorted(hosts, key=lambda end: (end.order, end.host)):
        if not end.signalled_by_us and log_tail.told_to_leave(end.tail):
            return Verdict(Reason.PREEMPTED, end.host, _POLITE)
    told = [end for end in hosts if end.signalled_by_us]
    if not told:
        return None
    if len(told) == len(hosts):
        return Verdict(Reason.CANCELLED, detail=_POLITE)
    first = min(told, key=lambda end: (end.order, end.host))
    return Verdict(Reason.PREEMPTED, first.host, _POLITE)


def _unstarted(hosts: Sequence[HostEnd]) -> Verdict | None:
    for end in hosts:
        if end.error:
            reason = _clue(end.error) or Reason.BAD_COMMAND
            return Verdict(reason, end.host, end.error)
    return None


def _taken(hosts: Sequence[HostEnd]) -> Verdict | None:
    """Return a verdict on hosts that were killed from outside, as no program ends itself this way."""
    for end in hosts:
        if end.taken:
            return Verdict(end.taken, end.host, end.how)
    for end in hosts:
        if end.lost or (end.code == KILLED and not end.signalled_by_us):
            if end.out_of_memory:
                return Verdict(Reason.OUT_OF_MEMORY, end.host)
            how = (
                "the program ended without an exit code; the process or its machine was killed"
                if end.lost
                else "killed by signal 9"
            )
            if end.there:
                return Verdict(Reason.PROCESS_LOST, end.host, f"{how}; the host still exists")
            return Verdict(Reason.HOST_LOST, end.host, how)
    return None


def _port_lost(hosts: Sequence[HostEnd]) -> Verdict | None:
    """Return a verdict on a lost port, which was free when tpukit chose it.

    Hosts that wait for the coordinator may give up before it does.
    """
    for end in hosts:
        if end.own_port and end.code and not end.signalled_by_us:
            ours = re.compile(rf"(?<!\d){end.own_port}(?!\d)")
            if any(_PORT.search(line) and ours.search(line) for line in end.tail):
                return Verdict(Reason.PORT_LOST, end.host, f"port {end.own_port}")
    return None


def _failed(hosts: Sequence[HostEnd]) -> Verdict | None:
    """Return a verdict on the first host whose program failed by itself, preferably one with an error in its log."""
    alone = len(hosts) == 1
    readings = [
        (end, log_tail.read(end.tail)) for end in hosts if end.code not in (0, TERMINATED) and not end.signalled_by_us
    ]
    for end, reading in readings:
        if reading.cause is Cause.CHIP:
            return Verdict(Reason.HOST_LOST, end.host, repr(reading.words))
    noticed = min((end.order for end, reading in readings if reading.cause is Cause.PEER), default=math.inf)
    for end, reading in readings:
        if reading.cause is Cause.ITSELF or end.disk_full:
            return _charged(end, reading)
        # With many hosts, only the first logs are read. A host without a log that ended later than one that lost a peer
        # lost a peer too.
        silent = not end.tail and end.order >= noticed
        if reading.cause is Cause.UNKNOWN and end.code != ABORTED and not silent:
            return _charged(end, reading)
    for end, reading in readings:
        # JAX never aborts silently: a host with output but none of JAX's messages aborted by itself. Its peers noticed
        # later; the log of one that ended after them may be cut off. A single host has no peer to lose, but may lose
        # the service that the runtime talks to.
        if (alone and reading.cause is not Cause.PEER) or (
            reading.cause is Cause.UNKNOWN and reading.words and end.order <= noticed
        ):
            return _charged(end, reading)
    return None


def _charged(end: HostEnd, reading: Reading) -> Verdict:
    reason = (Reason.DISK_FULL if end.disk_full else None) or _clue(reading.rest) or Reason.USER_ERROR
    return Verdict(reason, end.host, f"exit code {end.code}" + (f", {reading.words!r}" if reading.words else ""))


def _terminated(hosts: Sequence[HostEnd]) -> Verdict | None:
    """Return a verdict on a host that ended with 143, which means a SIGTERM that we did not send."""
    for end in hosts:
        if end.code == TERMINATED and not end.signalled_by_us:
            return Verdict(Reason.PREEMPTED, end.host)
    return None


def _hung(hosts: Sequence[HostEnd]) -> Verdict | None:
    """Return a verdict on a host that was killed after its peers gave it up."""
    if any(end.code != 0 and not end.signalled_by_us for end in hosts):
        for end in hosts:
            if end.signalled_by_us and end.code == KILLED:
                return Verdict(Reason.HANG, end.host, "it was killed after its peers lost their connection to it")
    return None


def _peer_lost(hosts: Sequence[HostEnd]) -> Verdict | None:
    for end in hosts:
        if end.code != 0 and not end.signalled_by_us:
            return Verdict(Reason.PEER_LOST, end.host)
    return None


def _clue(text: str) -> Reason | None:
    return next((reason for pattern, reason in _CLUES if pattern.search(text)), None)
