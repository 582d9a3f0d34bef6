"""The contract of a place: where attempts run. Plain data both ways; every call can be repeated safely."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from tpukit.plan import Plan
from tpukit.reasons import Reason, State
from tpukit.records import Attempt, Job


@dataclass(frozen=True, slots=True)
class Handle:
    """One attempt of one job: all that a place needs to find it again."""

    plan: Plan
    attempt: Attempt

    @staticmethod
    def of(job: Job, number: int | None = None) -> Handle:
        attempts = job.attempts
        return Handle(Plan.from_json(job.plan), attempts[-1] if number is None else attempts[number])


@dataclass(frozen=True, slots=True)
class HostView:
    """What is known of one host now."""

    name: str
    slice: int
    index: int  # in its slice
    state: str  # waiting | running | stopped (by a signal; it can go on) | ended | lost
    pid: int = 0  # where hosts are processes of this machine
    node: str = ""  # where they are not
    code: int | None = None
    step: int | None = None
    loss: float | None = None
    steps_per_s: float | None = None
    saved: int = -1
    moved: float = 0.0  # when its step last changed, as far as it said


@dataclass(frozen=True, slots=True)
class Observation:
    """What became of one attempt. PENDING means that not all of it is there yet: submit it again. SCHEDULED: it is all
    there and waits, and `detail` says for what."""

    state: State
    hosts: tuple[HostView, ...] = ()
    started: float = 0.0
    saved: int = -1
    reason: Reason | None = None
    host: str = ""  # the first host that failed
    detail: str = ""
    followed: bool = False  # it ended, and the place has begun the next attempt by itself


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a host's log."""

    host: str
    text: str


class Place(Protocol):
    name: str
    on_this_machine: bool  # its jobs take this machine's cores

    def submit(self, handle: Handle) -> None:
        """Twice with the same handle is once."""

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation]:
        """One look for many attempts."""

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]: ...

    def stop(self, handle: Handle, grace: float) -> None:
        """Tell all hosts to leave; killed when the grace is over. One that has not begun never will, and has ended."""

    def sweep(self, known: Callable[[], Sequence[Handle]]) -> Sequence[str]:
        """Remove what carries our mark and belongs to no known attempt; says what was removed.

        `known` is asked after looking: an attempt is written down before it is made, so none is taken for a stray.
        """
