"""Reasons for the end of an attempt: the job's state, the budget that pays, and what may follow.

Lost hardware is never charged to the user's restart budget.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    PENDING = "pending"
    SCHEDULED = "scheduled"
    RUNNING = "running"
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        return self in (State.COMPLETED, State.FAILED, State.CANCELLED)


class Reason(StrEnum):
    DONE = "done"
    PREEMPTED = "preempted"
    EVICTED = "evicted"
    MAINTENANCE = "maintenance"
    HOST_LOST = "host lost"
    PEER_LOST = "peer lost"
    PROCESS_LOST = "process lost"
    HANG = "hang"
    OUT_OF_MEMORY = "out of memory"
    DISK_FULL = "disk full"
    CHIPS_DENIED = "chips denied"
    PORT_IN_USE = "port in use"
    PORT_LOST = "port lost"
    BAD_IMAGE = "bad image"
    BAD_COMMAND = "bad command"
    CANNOT_START = "cannot start"
    USER_ERROR = "user error"
    TIMEOUT = "timeout"
    NO_CAPACITY = "no capacity"
    NO_QUOTA = "no quota"
    CANCELLED = "cancelled"


class Budget(StrEnum):
    """The budget that pays for another attempt."""

    NONE = "none"  # there is no other attempt
    HARDWARE = "hardware"  # no budget: the rule alone decides
    USER = "user"  # max.restarts


class Lost(StrEnum):
    """Kind of loss of an attempt. A rule has an answer for each."""

    HOST = "host"  # the hardware was lost
    PEER = "peer"  # the hardware is there, the processes lost each other


@dataclass(frozen=True, slots=True)
class Meaning:
    state: State  # the job's state when no attempt follows
    budget: Budget
    lost: Lost | None  # question to the job's rule; None: the rule does not apply
    message: str  # {host} is the first host that failed


_FAILED, _USER, _HARDWARE = State.FAILED, Budget.USER, Budget.HARDWARE

MEANINGS: dict[Reason, Meaning] = {
    Reason.DONE: Meaning(State.COMPLETED, Budget.NONE, None, "completed on all hosts"),
    Reason.CANCELLED: Meaning(State.CANCELLED, Budget.NONE, None, "stopped on request"),
    Reason.TIMEOUT: Meaning(_FAILED, Budget.NONE, None, "ran past max.runtime"),
    Reason.BAD_COMMAND: Meaning(_FAILED, Budget.NONE, None, "{host} could not start the command"),
    Reason.CANNOT_START: Meaning(_FAILED, Budget.NONE, None, "the job cannot be started in this form"),
    # The next attempt would be refused the same way.
    Reason.CHIPS_DENIED: Meaning(
        _FAILED,
        Budget.NONE,
        None,
        "{host} may not open its TPU chips: write `access: tpu` in the job file, or else `access: privileged`",
    ),
    Reason.BAD_IMAGE: Meaning(_FAILED, Budget.NONE, None, "{host} could not pull the image"),
    Reason.NO_QUOTA: Meaning(_FAILED, Budget.NONE, None, "the project's quota is too small"),
    Reason.USER_ERROR: Meaning(_FAILED, _USER, None, "the program on {host} failed"),
    Reason.OUT_OF_MEMORY: Meaning(_FAILED, _USER, None, "{host} ran out of memory"),
    Reason.DISK_FULL: Meaning(_FAILED, _USER, None, "the disk of {host} is full"),
    Reason.PORT_IN_USE: Meaning(_FAILED, _USER, None, "a port that {host} needs is taken by another program"),
    # The port was free when tpukit chose it, so neither a rule nor the user's budget applies.
    Reason.PORT_LOST: Meaning(_FAILED, _HARDWARE, None, "another program took the port that tpukit chose for {host}"),
    Reason.PREEMPTED: Meaning(_FAILED, _HARDWARE, Lost.HOST, "{host} was preempted"),
    Reason.EVICTED: Meaning(_FAILED, _HARDWARE, None, "evicted from the queue"),
    Reason.MAINTENANCE: Meaning(_FAILED, _HARDWARE, Lost.HOST, "{host} went into maintenance"),
    Reason.HOST_LOST: Meaning(_FAILED, _HARDWARE, Lost.HOST, "{host} was lost"),
    Reason.NO_CAPACITY: Meaning(_FAILED, _HARDWARE, Lost.HOST, "no slice of this type is available"),
    Reason.PEER_LOST: Meaning(_FAILED, _HARDWARE, Lost.PEER, "{host} lost its connection to a peer"),
    Reason.PROCESS_LOST: Meaning(_FAILED, _HARDWARE, Lost.PEER, "the program on {host} was killed"),
    Reason.HANG: Meaning(_FAILED, _HARDWARE, Lost.PEER, "{host} stopped making progress"),
}


def message(reason: Reason, host: str = "") -> str:
    return MEANINGS[reason].message.format(host=host or "a host")
