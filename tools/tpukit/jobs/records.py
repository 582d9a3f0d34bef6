"""Records of jobs, each complete enough for another driver on another machine to continue from.

History holds decisions (states and reasons). Measurements such as step times are streamed to TensorBoard, never stored
here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tpukit.core.errors import Conflict, NotFound
from tpukit.jobs.reasons import Reason, State
from tpukit.kernel.store import Kind, Store

ACTIVE = (State.PENDING, State.SCHEDULED, State.RUNNING)


class Marks(msgspec.Struct, frozen=True):
    """Times at which an attempt passed from one cause of spent time to the next, and the cost of its saves.

    See tpukit.goodput. Times are seconds since the epoch; 0: not seen.
    """

    since: float = 0.0  # start of its time: the end of the previous attempt, or when the job was sent
    base: int = -1  # furthest step of earlier attempts with the same origin
    making: float = 0.0  # its slices were being created
    placed: float = 0.0  # its slices were ready
    announced: float = 0.0  # its program announced steps
    stepped: float = 0.0  # its first step was seen
    first: int = -1  # that step
    advanced: float = 0.0  # its first step beyond `base` was seen
    moved: float = 0.0  # its step last changed; noted when it ends or is stopped
    told: float = 0.0  # its stop was requested
    saves: int = 0  # saves whose cost was measured
    saving: float = 0.0  # seconds for which those saves blocked training
    squares: float = 0.0  # sum of the squares of those seconds, for the error


class Attempt(msgspec.Struct, frozen=True):
    """One attempt at running a job."""

    number: int
    stage: int  # resumes since the last start from the beginning
    origin: int  # number of the attempt that last started from the beginning
    state: State = State.SCHEDULED
    asked: bool = False  # a person requested it: budgets restart
    started: float = 0.0  # time at which all hosts ran; 0: never
    ended: float = 0.0
    saved: int = -1  # last saved step; -1: none
    stopping: Reason | None = None  # why it was stopped
    reason: Reason | None = None
    host: str = ""  # the first host that failed
    detail: str = ""  # detail that this host reported
    action: str = "rerun"  # how it began: rerun (from the beginning), resume, reapply (TPU recreated first)
    learned: dict[str, Any] = {}  # data by which its place recognises it, on any machine; opaque elsewhere
    step: int = -1  # furthest step seen when it ended; -1: none
    warning: str = ""  # warning for the user, although it ran or completed
    marks: Marks = Marks()


class Folded(msgspec.Struct, frozen=True):
    """Counts of attempts that a record no longer holds one by one, for later decisions (tpukit.jobs.history)."""

    count: int = 0  # number of the first attempt after them
    reasons: dict[str, int] = {}  # ends by reason, since a person last requested an attempt
    lost: int = 0  # trailing attempts that hardware took away and that saved nothing new
    refused: int = 0  # trailing attempts for which Google had no capacity
    shown: bool = False  # one of them showed a step, since a person last requested an attempt
    origin: int = -1  # of the last one, as are the next two
    saved: int = -1
    furthest: int = -1  # furthest step seen since its origin
    kept: tuple[Attempt, ...] = ()  # the first of all, and the last one for which its place learned something
    spent: dict[str, dict[str, int]] = {}  # milliseconds by week and cause (tpukit.goodput)
    measured: dict[str, float] = {}  # sums that advice needs (tpukit.goodput)


class Outcome(msgspec.Struct, frozen=True):
    """The end of a job, decided while parts of it still run."""

    state: State
    reason: Reason
    message: str


class Job(msgspec.Struct, frozen=True):
    """The record of a job: the user's request and its state."""

    id: str
    place: str
    team: str
    owner: str
    created: float
    plan: dict[str, Any]  # settled when it was sent; read back without today's checks
    tags: tuple[str, ...] = ()
    state: State = State.PENDING
    reason: Reason | None = None  # why it or its last attempt ended, or what it waits for
    message: str = ""
    ended: float = 0.0
    wanted: str = "run"  # run | stop | resume | rerun: a person's last request, until it is done
    attempts: tuple[Attempt, ...] = ()  # the last ones, with consecutive numbers
    outcome: Outcome | None = None
    folded: Folded | None = None  # attempts before `attempts`; None: there are none
    submission: str = ""  # random text that the sender chose before first trying to send it

    @property
    def attempt(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


RECORD_BYTES = 256 * 1024
"""Most bytes of a job's record, as JSON.

`tpukit.jobs.history` keeps attempts and texts within it; a plan that leaves them no room is refused before it is sent.
"""
PLAN_BYTES = 64 * 1024

JOBS: Kind[Job] = Kind(
    "jobs", Job, state="state", order="created", opaque=("plan",), known=tuple(State), limit=RECORD_BYTES
)


def is_active(store: Store, job_id: str) -> bool | None:
    """Report whether a job is active; None if there is no such job. An unreadable record counts as active."""
    try:
        return store.get(JOBS, job_id).value.state in ACTIVE
    except NotFound:
        return None
    except Conflict:
        return True


# msgspec inspects a type when it first reads one, and crashes if another thread does so meanwhile.
msgspec.json.Decoder(Job)
