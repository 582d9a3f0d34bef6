"""Where attempts run. Plain data both ways; every call can be repeated safely, from any machine that has the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from tpukit.errors import Problem, TpukitError
from tpukit.plan import Plan
from tpukit.reasons import Reason, State
from tpukit.records import Attempt, Job


@dataclass(frozen=True, slots=True)
class Handle:
    """One attempt of one job: all that a place needs to recognise it again."""

    plan: Plan
    attempt: Attempt
    earlier: tuple[Attempt, ...] = ()  # attempts of the job before it

    @staticmethod
    def of(job: Job, number: int | None = None) -> Handle:
        return Handle.with_plan(Plan.from_json(job.plan), job, number)

    @staticmethod
    def with_plan(plan: Plan, job: Job, number: int | None = None) -> Handle:
        """`plan`: the job's, read before."""
        index = len(job.attempts) - 1 if number is None else number
        return Handle(plan, job.attempts[index], job.attempts[:index])


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
    heard: float = 0.0  # on the driver's monotonic clock: when its progress could last be read; 0: not yet
    pace: float = 0.0  # seconds that may pass between two of its reports; infinite: nobody can say yet
    idle: float = 0.0  # seconds for which its progress could be read and did not change; the driver fills it in


@dataclass(frozen=True, slots=True)
class Observation:
    """What became of one attempt.

    PENDING: not all of it is there yet: submit it again. SCHEDULED: it is all there and waits; `reason` and `detail`
    say for what. COMPLETED and FAILED: it has ended.
    """

    state: State
    hosts: tuple[HostView, ...] = ()
    started: float = 0.0  # when all hosts ran; 0: not yet, or nobody knows
    saved: int = -1
    reason: Reason | None = None
    host: str = ""  # the first host that failed
    detail: str = ""
    active: bool = True  # something of the job is there and runs, or will run by itself
    held: bool = False  # hardware waits for the job's next attempt: it is given back by `stop` when the job ends
    ended: float = 0.0  # when it ended, as the place has it; 0: nobody knows
    ran: float = 0.0  # seconds since it started, less those that its machine slept
    warning: str = ""  # what a person should know of it although it runs or ended well
    learned: Mapping[str, Any] = field(default_factory=dict)  # to be remembered with this attempt
    next: Mapping[str, Any] | None = None  # the place began the next attempt by itself: to be remembered with that


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a host's log."""

    host: str
    text: str


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """Something of somebody else's that runs in a place: shown, and touched only once it was adopted."""

    id: str
    team: str
    state: State
    created: float
    ended: float
    message: str
    owner: str
    tpu: str
    slices: int
    attempts: int
    adopted: bool


@dataclass(frozen=True, slots=True)
class Capabilities:
    """What a place can do, for those who would otherwise have to ask for it by its name."""

    uses_this_machine: bool = False  # its attempts take this machine's cores
    drives_itself: bool = False  # an attempt that it has taken is restarted and ended without a driver
    kills_hosts: bool = False  # hosts can be lost on purpose (`--lose`)
    unmanaged: bool = False  # it can tell what runs there that no store knows
    named_machines: bool = False  # a person may say which machines a job runs on (`--on`)


class Place(Protocol):
    name: str
    capabilities: Capabilities

    def prepare(self, plan: Plan) -> Plan:
        """The plan with what the place settles before a send. Refuses what cannot run there."""

    def taken(self, plan: Plan) -> frozenset[str]:
        """Ids that are in use there, whoever uses them."""

    def check(self, plan: Plan) -> Sequence[Problem]:
        """What the place would refuse, asked with the very names that will be used. Nothing is made."""

    def check_code(self, plan: Plan) -> None:
        """Before another attempt: Invalid where the code that the job was sent with is gone."""

    def group(self, plan: Plan) -> str | None:
        """Attempts of one group are observed in one call. None: this machine cannot reach where it runs."""

    def submit(self, handle: Handle) -> None:
        """Twice with the same handle is once. Invalid: it can never be started as it is."""

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        """One call for many attempts of one group."""

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]: ...

    def tail(self, handle: Handle, host: str, size: int) -> Sequence[str]:
        """Return the last lines that a host printed, about `size` bytes of them. The rest of its log is not read."""

    def stop(self, handle: Handle, grace: float) -> None:
        """Tell all of it to leave; killed when the grace is over. One that has not begun never will.

        Of an attempt whose record has ended: give back what is held for the job.
        """

    def lose(self, handle: Handle, host: str) -> None:
        """Take a host's program away without a word, as if the host had lost power. Where `kills_hosts` only."""

    def sweep(self, known: Callable[[], Sequence[Handle]]) -> Sequence[str]:
        """Remove what carries this store's mark and belongs to no active attempt; says what was removed.

        Only what was seen twice over a minimum age. `known` is asked after looking.
        """

    def workdir(self, plan: Plan, origin: int) -> str: ...

    def notes(self, plan: Plan) -> Sequence[str]:
        """What a person may not expect of this job in this place."""

    def forget(self, handle: Handle) -> str:
        """What may be left there of a job that is to be closed without the place's word, for a person to remove."""
