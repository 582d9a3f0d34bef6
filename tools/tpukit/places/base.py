"""Where attempts run. Plain data both ways; every call can be repeated safely, from any machine that has the record."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from tpukit.core.errors import NotFound, Problem, TpukitError
from tpukit.goodput.causes import Cause
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt, Job


@dataclass(frozen=True, slots=True)
class Handle:
    """One attempt of one job: all that a place needs to recognise it again."""

    plan: Plan
    attempt: Attempt
    earlier: tuple[Attempt, ...] = ()  # attempts of the job before it that its record holds
    cancelled: bool = False  # a person asked to stop the job

    @staticmethod
    def of(job: Job, number: int | None = None) -> Handle:
        return Handle.with_plan(Plan.from_json(job.plan), job, number)

    @staticmethod
    def with_plan(plan: Plan, job: Job, number: int | None = None) -> Handle:
        """`plan`: the job's, read before. NotFound where the record holds no attempt of that number."""
        folded = job.folded.kept if job.folded else ()
        last = job.attempts[-1].number
        found = [one for one in (*folded, *job.attempts) if one.number == (last if number is None else number)]
        if not found:
            hint = f"it holds {job.attempts[0].number} to {last}" + (", and 0" if folded else "")
            raise NotFound(f"the record of {job.id} holds no attempt {number}", hint=hint)
        earlier = tuple(one for one in (*folded, *job.attempts) if one.number < found[-1].number)
        return Handle(plan, found[-1], earlier, job.wanted == "stop")


@dataclass(frozen=True, slots=True)
class Known:
    """What the store knows of the jobs of a place, for a sweep."""

    handles: Sequence[Handle] = ()  # last attempts of active jobs
    unreadable: frozenset[str] = frozenset()  # ids of jobs whose records cannot be read: these count as active
    ended: Sequence[Plan] = ()  # of jobs that ended lately: something may be left where they ran


Claim = Callable[[str], AbstractContextManager[bool]]
"""Take the lease of a job for the time of a block: True where the job is not active, so that what is left of it can be
removed. No driver can begin an attempt of it meanwhile."""


def unclaimed(_job_id: str) -> AbstractContextManager[bool]:
    """Return a claim that is always free, for sweeps without a store."""
    return nullcontext(True)


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
    total: int | None = None  # the steps that it is going to make, where its program says so
    moved: float = 0.0  # when its step last changed, as far as it said
    heard: float = 0.0  # on the driver's monotonic clock: when its progress could last be read; 0: not yet
    pace: float = 0.0  # seconds that may pass between two of its reports; infinite: nobody can say yet
    early: bool = False  # its steps can be read, and since it began it has shown one at most
    idle: float = 0.0  # seconds for which its progress could be read and did not change; the driver fills it in


@dataclass(frozen=True, slots=True)
class FollowUp:
    """What an observation found to be done for an attempt that runs. The driver does it under the job's lease."""

    admit: bool = False  # let this driver's key into the hosts
    leave: tuple[str, ...] = ()  # hosts to be told to leave, because a peer of theirs has failed
    grace: float = 0.0  # seconds after which those are killed
    renew: bool = False  # the limit of max.unattended is to be moved on


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
    follow_up: FollowUp | None = None  # of one that runs: to be done by `Place.follow_up`
    waits_as: Cause = Cause.WAITING  # of one that waits: what that time counts as
    save_held: float | None = None  # seconds for which the save since the last observation kept training waiting


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a host's log."""

    host: str
    text: str
    at: float = 0.0  # when it was printed, in seconds since the epoch; 0: not known


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
    log_times: bool = False  # it knows when lines were printed
    executes: bool = False  # it runs commands on hosts (`tpu job exec`)
    unmanaged: bool = False  # it can tell what runs there that no store knows
    named_machines: bool = False  # a person may say which machines a job runs on (`--on`)


class Executes(Protocol):
    """What a place with the capability `executes` can do beside the contract."""

    def execute(self, handle: Handle, host: str, command: Sequence[str], *, terminal: bool) -> int:
        """Run a command on a running host, with the input and output of this process: its exit code.

        `terminal`: this process has one, and the command gets one too.
        """


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

    def share_code(self, plan: Plan) -> str:
        """Before the job is recorded: put its staged code where a driver on another machine finds it. Return why it
        cannot be put there; empty: it is there, or no other machine will need it.

        Raises:
            Transient: Not now; try again.
        """

    def group(self, plan: Plan) -> str | None:
        """Attempts of one group are observed in one call. None: this machine cannot reach where it runs."""

    def submit(self, handle: Handle) -> Mapping[str, Any] | None:
        """Start the attempt. Twice with the same handle is once. Invalid: it can never be started as it is.

        Return what is to be remembered with the attempt, so that one that is removed later is not started again.
        """

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        """One call for many attempts of one group.

        An attempt of which nothing can be seen gets an error: that it cannot be seen is no evidence of its end.
        """

    def follow_up(self, handle: Handle, what: FollowUp) -> None:
        """Do what an observation found to be done. Twice is once."""

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]: ...

    def tail(self, handle: Handle, host: str, size: int) -> Sequence[str]:
        """Return the last lines that a host printed, about `size` bytes of them. The rest of its log is not read."""

    def stop(self, handle: Handle, grace: float) -> None:
        """Tell all of it to leave; killed when the grace is over. One that has not begun never will.

        Of an attempt whose record has ended: give back what is held for the job.
        """

    def lose(self, handle: Handle, host: str) -> None:
        """Take a host's program away without a word, as if the host had lost power. Where `kills_hosts` only."""

    def sweep(
        self, known: Callable[[], Known], complain: Callable[[str], None] = ..., claim: Claim = ...
    ) -> Sequence[str]:
        """Remove what carries this store's mark and belongs to no active attempt; return what was removed.

        Only what was seen twice over a minimum age. `known` is asked after looking. What cannot be looked at or
        removed is reported to `complain`, and the sweep goes on. `claim` is taken around each removal.
        """

    def workdir(self, plan: Plan, origin: int) -> str: ...

    def notes(self, plan: Plan) -> Sequence[str]:
        """What a person may not expect of this job in this place."""

    def forget(self, handle: Handle) -> str:
        """What may be left there of a job that is to be closed without the place's word, for a person to remove.

        Raises:
            Conflict: Hardware is held for the job, although nothing of its hosts can be seen.
        """
