"""What is remembered of jobs: plain records, each enough for another driver on another machine to go on from.

History holds decisions (states and reasons). Measurements such as step times are streamed to TensorBoard, never here.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tpukit.core.errors import Conflict, NotFound
from tpukit.jobs.reasons import Reason, State
from tpukit.kernel.store import Kind, Store

ACTIVE = (State.PENDING, State.SCHEDULED, State.RUNNING)


class Marks(msgspec.Struct, frozen=True):
    """When an attempt passed from one cause of spent time to the next (tpukit.goodput), and what its saves cost.

    Times are seconds since the epoch; 0: not seen.
    """

    since: float = 0.0  # its time counts from here: the end of the attempt before, or when the job was sent
    base: int = -1  # the furthest step that attempts before it had done, since their origin
    making: float = 0.0  # its slices were being made
    placed: float = 0.0  # its slices were there
    announced: float = 0.0  # its program reported that steps will follow
    stepped: float = 0.0  # its first step was seen
    first: int = -1  # that step
    advanced: float = 0.0  # its first step beyond `base` was seen
    moved: float = 0.0  # its step last changed; noted when it ends or is told to leave
    told: float = 0.0  # it was told to leave
    saves: int = 0  # saves whose cost was measured
    saving: float = 0.0  # seconds for which those kept training waiting
    squares: float = 0.0  # sum of the squares of those seconds, for the error


class Attempt(msgspec.Struct, frozen=True):
    """One try at a job."""

    number: int
    stage: int  # resumes before this attempt, since it last began from the beginning
    origin: int  # number of the attempt that last began from the beginning
    state: State = State.SCHEDULED
    asked: bool = False  # a person asked for it: budgets begin anew
    started: float = 0.0  # when all hosts ran; 0: never
    ended: float = 0.0
    saved: int = -1  # last saved step; -1: none
    stopping: Reason | None = None  # why it was told to leave
    reason: Reason | None = None
    host: str = ""  # the first host that failed
    detail: str = ""  # what that host said
    action: str = "rerun"  # what made it: rerun (from the beginning), resume, reapply (the TPU made anew first)
    learned: dict[str, Any] = {}  # what its place needs to recognise it again, on any machine; nobody else reads it
    step: int = -1  # the furthest that was seen when it ended; -1: none was
    warning: str = ""  # what a person should know of it although it ran, or ended well
    marks: Marks = Marks()


class Folded(msgspec.Struct, frozen=True):
    """Attempts that a record holds no more one by one: what later decisions need of them (tpukit.jobs.history)."""

    count: int = 0  # the first attempt behind them has this number
    reasons: dict[str, int] = {}  # how those since a person last asked for one ended
    lost: int = 0  # trailing ones that hardware took away and that saved nothing new
    refused: int = 0  # trailing ones that Google had no capacity for
    shown: bool = False  # one of them since a person last asked showed a step
    origin: int = -1  # of the last one, as are the next two
    saved: int = -1
    furthest: int = -1  # the furthest step that was seen since its origin
    kept: tuple[Attempt, ...] = ()  # the first of all, and the last one that its place learned something of
    spent: dict[str, dict[str, int]] = {}  # milliseconds by week and cause (tpukit.goodput)
    measured: dict[str, float] = {}  # sums that advice needs (tpukit.goodput)


class Outcome(msgspec.Struct, frozen=True):
    """How a job is going to end, as soon as nothing of it runs any more."""

    state: State
    reason: Reason
    message: str


class Job(msgspec.Struct, frozen=True):
    """What a user asked for, and what became of it."""

    id: str
    place: str
    team: str
    owner: str
    created: float
    plan: dict[str, Any]  # settled when it was sent; read back without today's checks
    tags: tuple[str, ...] = ()
    state: State = State.PENDING
    reason: Reason | None = None  # why it ended, why the last attempt did, or what it waits for
    message: str = ""
    ended: float = 0.0
    wanted: str = "run"  # run | stop | resume | rerun: what a person last asked for, until it is done
    attempts: tuple[Attempt, ...] = ()  # the last ones, with consecutive numbers
    outcome: Outcome | None = None
    folded: Folded | None = None  # attempts before `attempts`; None: there are none
    submission: str = ""  # random text that its sender chose before the first try to send it

    @property
    def attempt(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None


RECORD_BYTES = 256 * 1024
"""Size that no record of a job exceeds, as JSON. `tpukit.jobs.history` keeps attempts and texts within it; a plan that
leaves them no room is refused before it is sent."""
PLAN_BYTES = 64 * 1024

JOBS: Kind[Job] = Kind(
    "jobs", Job, state="state", order="created", opaque=("plan",), known=tuple(State), limit=RECORD_BYTES
)


def is_active(store: Store, job_id: str) -> bool | None:
    """Return whether a job has not ended; None where there is no such job. An unreadable record counts as active."""
    try:
        return store.get(JOBS, job_id).value.state in ACTIVE
    except NotFound:
        return None
    except Conflict:
        return True


# msgspec finds out what a type is made of when it first reads one, and crashes if another thread does so meanwhile.
msgspec.json.Decoder(Job)
