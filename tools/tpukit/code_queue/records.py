"""The document of a queued job, as applications write and read it.

An application writes `code`, `timeout`, `status: "pending"` and `created_at`, and reads the rest. Its own fields may
hold anything: they are checked where a job is decided on, so that a wrong one ends with a sentence instead of being
overlooked for ever.
"""

from __future__ import annotations

import math
from typing import Any

import msgspec

from tpukit.jobs.reasons import State
from tpukit.kernel.store import Kind, Plain

PENDING, SCHEDULED, RUNNING = str(State.PENDING), str(State.SCHEDULED), str(State.RUNNING)
COMPLETED, FAILED, CANCELLED = str(State.COMPLETED), str(State.FAILED), str(State.CANCELLED)
ACTIVE = (PENDING, SCHEDULED, RUNNING)
ENDED = (COMPLETED, FAILED, CANCELLED)

TIMEOUT = 300
ATTEMPTS = 5
TIMES = ("created_at", "scheduled_at", "started_at", "completed_at", "updated_at")
_PRIORITY_STEP = 1e10  # seconds: more than any two jobs are apart


class QueuedJob(msgspec.Struct, frozen=True):
    # What the application writes.
    challenge_number: Any = None
    code: Any = ""
    timeout: Any = TIMEOUT  # seconds that the code may run
    status: Any = PENDING
    metadata: Any = {}
    priority: Any = 0  # higher goes first
    # What becomes of it. Times are seconds since the epoch, 0 for what has not happened.
    created_at: float = 0.0
    scheduled_at: float = 0.0  # of the last attempt, as is the next
    started_at: float = 0.0
    completed_at: float = 0.0
    updated_at: float = 0.0
    result: Any = None  # text
    result_uri: str = ""  # where all of it is, when `result` is only its beginning
    error: Any = None  # text
    reason: str = ""  # of tpukit.jobs.reasons: why it ended, or why the last attempt did
    logs: str = ""  # what the code printed; its beginning and its end when that was much
    worker: str = ""  # who ran it last
    schedules: int = 0  # how often a worker was started for it
    attempts: int = 0  # that were begun
    faults: int = 0  # attempts that the infrastructure lost
    max_faults: int = ATTEMPTS
    not_before: float = 0.0  # when it may be tried again
    cancel: bool = False  # somebody asked for that
    dead_letter: bool = False  # failed for good although its code is not known to be wrong
    ranked: bool = True  # its place in the queue is stored with it; false for what a plain client wrote
    peer_error: str = ""  # how its code failed on another host than the first one, in this attempt

    @property
    def rank(self) -> float:
        """Place in the queue: by priority, then by age. What waits for its next try stands where it may begin."""
        priority = self.priority if is_number(self.priority) else 0
        return max(self.created_at, self.not_before) - max(-100.0, min(100.0, priority)) * _PRIORITY_STEP


def is_number(value: Any) -> bool:
    """Whether it is a finite number that a float holds."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def tidy(doc: dict[str, Any]) -> dict[str, Any]:
    """Return the document without what a program wrote into fields that are not its own, where they cannot be read."""
    return {name: value for name, value in doc.items() if name not in OWN or _fits(value, OWN[name])}


def _fits(value: Any, kind: type) -> bool:
    if kind is float:
        return is_number(value) and 0 <= value < LATEST
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return isinstance(value, kind)


LATEST = 253_402_300_800.0
"""Seconds since the epoch: the year 10,000, which no timestamp reaches."""
OWN: dict[str, type] = {  # fields that only tpukit writes, and of what type each is
    **dict.fromkeys((*TIMES, "not_before"), float),
    **dict.fromkeys(("result_uri", "reason", "logs", "worker", "peer_error"), str),
    **dict.fromkeys(("schedules", "attempts", "faults", "max_faults"), int),
    **dict.fromkeys(("cancel", "dead_letter", "ranked"), bool),
}

TPU_JOBS = Kind(
    "tpu_jobs",
    QueuedJob,
    state="status",
    order="rank",
    plain=Plain(TIMES, placed="ranked", heard="created_at", tidy=tidy),
    known=(*ACTIVE, *ENDED),
)

# msgspec finds out what a type is made of when it first reads one, and crashes if another thread does so meanwhile.
msgspec.json.Decoder(QueuedJob)
