"""The document of a queued job, as applications write and read it.

An application writes `code`, `timeout`, `status: "pending"` and `created_at`, and reads the rest. Its own fields may
hold anything: they are checked when a job is decided on, so that an invalid one ends with an error message instead of
being ignored forever.
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
_PRIORITY_STEP = 1e10  # in seconds: longer than the time between any two jobs


class QueuedJob(msgspec.Struct, frozen=True):
    # Written by the application.
    challenge_number: Any = None
    code: Any = ""
    timeout: Any = TIMEOUT  # seconds that the code may run
    status: Any = PENDING
    metadata: Any = {}
    priority: Any = 0  # higher goes first
    # Written by tpukit. Times are seconds since the epoch, 0 for events that have not happened.
    created_at: float = 0.0
    scheduled_at: float = 0.0  # of the last attempt, as is the next
    started_at: float = 0.0
    completed_at: float = 0.0
    updated_at: float = 0.0
    result: Any = None  # text
    result_uri: str = ""  # where the whole result is, if `result` is only its beginning
    error: Any = None  # text
    reason: str = ""  # from tpukit.jobs.reasons: why the job or its last attempt ended
    logs: str = ""  # what the code printed; only the beginning and the end if that is long
    worker: str = ""  # the last worker
    schedules: int = 0  # how often a worker was started for it
    attempts: int = 0  # number of attempts begun
    faults: int = 0  # attempts that the infrastructure lost
    max_faults: int = ATTEMPTS
    not_before: float = 0.0  # when it may be retried
    cancel: bool = False  # cancellation was requested
    dead_letter: bool = False  # failed for good although its code is not known to be wrong
    ranked: bool = True  # its place in the queue is stored with it; false for documents of a plain client
    peer_error: str = ""  # how its code failed on another host than the first one, in this attempt

    @property
    def rank(self) -> float:
        """Return the place in the queue: by priority, then by age. A job that waits for a retry ranks by that time."""
        priority = self.priority if is_number(self.priority) else 0
        return max(self.created_at, self.not_before) - max(-100.0, min(100.0, priority)) * _PRIORITY_STEP


def is_number(value: Any) -> bool:
    """Return whether the value is a finite number that fits a float."""
    if not isinstance(value, (int, float)) or isinstance(value, bool):
        return False
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def tidy(doc: dict[str, Any]) -> dict[str, Any]:
    """Return the document without invalid values in fields that only tpukit writes."""
    return {name: value for name, value in doc.items() if name not in OWN or _fits(value, OWN[name])}


def _fits(value: Any, kind: type) -> bool:
    if kind is float:
        return is_number(value) and 0 <= value < LATEST
    if kind is int:
        return isinstance(value, int) and not isinstance(value, bool) and 0 <= value < 2**31
    return isinstance(value, kind)


LATEST = 253_402_300_800.0
"""Seconds since the epoch: the year 10,000, which no timestamp reaches."""
OWN: dict[str, type] = {  # fields that only tpukit writes, with their types
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

# msgspec resolves a type when it first decodes one, and crashes if another thread does so at the same time.
msgspec.json.Decoder(QueuedJob)
