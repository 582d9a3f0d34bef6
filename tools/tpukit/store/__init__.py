"""What is remembered of jobs: plain records, and one small interface with several homes.

History holds decisions (states and reasons). Measurements such as step times are streamed to TensorBoard, never here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import asdict, dataclass, field
from typing import Any, Protocol

from tpukit.reasons import Reason, State


@dataclass(frozen=True, slots=True)
class Attempt:
    """One try at a job."""

    number: int
    stage: int  # resumes before this attempt, since it last began from the beginning
    origin: int  # number of the attempt that last began from the beginning
    state: State = State.SCHEDULED
    asked: bool = False  # a person asked for it: budgets begin anew
    started: float = 0.0  # when all hosts ran
    ended: float = 0.0
    saved: int = -1  # last saved step; -1: none
    stopping: Reason | None = None  # why it was told to leave
    reason: Reason | None = None
    host: str = ""  # the first host that failed
    detail: str = ""  # what that host said


@dataclass(frozen=True, slots=True)
class Job:
    """What a user asked for, and what became of it."""

    id: str
    place: str
    team: str
    owner: str
    created: float
    plan: dict[str, Any] = field(repr=False)
    tags: tuple[str, ...] = ()
    state: State = State.PENDING
    reason: Reason | None = None
    message: str = ""
    ended: float = 0.0
    wanted: str = "run"  # run | stop | resume | rerun: what a person last asked for, until it is done
    attempts: tuple[Attempt, ...] = ()

    @property
    def attempt(self) -> Attempt | None:
        return self.attempts[-1] if self.attempts else None

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @staticmethod
    def from_json(doc: dict[str, Any]) -> Job:
        attempts = tuple(
            Attempt(
                **{
                    **attempt,
                    "state": State(attempt["state"]),
                    "reason": attempt["reason"] and Reason(attempt["reason"]),
                    "stopping": attempt["stopping"] and Reason(attempt["stopping"]),
                }
            )
            for attempt in doc["attempts"]
        )
        return Job(
            **{
                **doc,
                "state": State(doc["state"]),
                "reason": doc["reason"] and Reason(doc["reason"]),
                "tags": tuple(doc["tags"]),
                "attempts": attempts,
            }
        )


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened to a job, in a sentence."""

    job: str
    at: float
    text: str


class Store(Protocol):
    """Safe for many processes at once. Every call is one transaction."""

    def add(self, job: Job) -> None:
        """Conflict if the id is taken."""

    def get(self, job_id: str) -> Job:
        """NotFound if there is none."""

    def jobs(self, *, active: bool = False, limit: int = 0) -> Sequence[Job]:
        """Newest first; oldest first when only active ones are asked for, as that is the order they are served in."""

    def taken(self, prefix: str) -> frozenset[str]:
        """Ids in use that begin with `prefix`."""

    def change(self, job_id: str, change: Callable[[Job], Job], *, note: str = "", at: float = 0.0) -> Job:
        """Read, change and write one job in one transaction; the note becomes an event with it."""

    def events(self, job_id: str) -> Sequence[Event]: ...

    def hold(self, job_id: str) -> AbstractContextManager[bool]:
        """True while the caller is the only one that acts on this job. Given up at once when its process dies."""
