"""The contract of places, where attempts run.

Input and output are plain data. Every call is idempotent and works from any machine that has the record.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any, Protocol

from tpukit.core.errors import NotFound, Problem, TpukitError
from tpukit.goodput.causes import Cause
from tpukit.goodput.eviction import EvictionCost
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt, Job
from tpukit.places.capabilities import Capabilities


@dataclass(frozen=True, slots=True)
class Handle:
    """One attempt of one job, with everything a place needs to identify it."""

    plan: Plan
    attempt: Attempt
    earlier: tuple[Attempt, ...] = ()  # earlier attempts of the job in its record
    cancelled: bool = False  # the user asked to stop the job

    @staticmethod
    def of(job: Job, number: int | None = None) -> Handle:
        return Handle.with_plan(Plan.from_json(job.plan), job, number)

    @staticmethod
    def with_plan(plan: Plan, job: Job, number: int | None = None) -> Handle:
        """Return the handle of attempt `number` (default: the last), with the `plan` already read from the job.

        Raises:
            NotFound: The record holds no attempt of that number.
        """
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
    """The jobs of a place as the store knows them, for a sweep."""

    handles: Sequence[Handle] = ()  # last attempts of active jobs
    unreadable: frozenset[str] = frozenset()  # ids of jobs whose records cannot be read; they count as active
    ended: Sequence[Plan] = ()  # of recently ended jobs, which may have left something behind


Claim = Callable[[str], AbstractContextManager[bool]]
"""Take the lease of a job for the duration of a block.

True if the job is not active, so that its remains can be removed. No driver can begin an attempt of it meanwhile.
"""


def unclaimed(_job_id: str) -> AbstractContextManager[bool]:
    """Return a claim that is always free, for sweeps without a store."""
    return nullcontext(True)


@dataclass(frozen=True, slots=True)
class HostView:
    """The current state of one host."""

    name: str
    slice: int
    index: int  # in its slice
    state: str  # waiting | running | stopped (by a signal; can continue) | ended | lost
    pid: int = 0  # where hosts are processes on this machine
    node: str = ""  # elsewhere
    code: int | None = None
    step: int | None = None
    loss: float | None = None
    steps_per_s: float | None = None
    saved: int = -1
    total: int | None = None  # total steps, if the program reports them
    moved: float = 0.0  # when its step last changed, as far as it reported
    heard: float = 0.0  # on the driver's monotonic clock: when its progress was last read; 0: not yet
    pace: float = 0.0  # maximum seconds between two of its reports; infinite: not known yet
    early: bool = False  # its steps are readable, and it has reported at most one since it began
    beat: float = 0.0  # on the host's monotonic clock: its last sign of life after that step; 0: none
    cpu: float = 0.0  # seconds of processor time by then
    saves: bool = False  # it was saving or restoring then
    idle: float = 0.0  # seconds for which its progress was readable but unchanged; set by the driver
    excused: float = 0.0  # of those, seconds in which a host of the attempt computed or saved; set by the driver
    frozen: bool = False  # it gives no sign of life while another does; set by the driver


@dataclass(frozen=True, slots=True)
class QueueCost:
    """The cost of evicting a job, to be written on its entry of the queue if that has not changed since."""

    entry: str  # the name of the entry
    uid: str
    version: str
    priority: int
    boost: int | None  # as it is written there now
    cost: EvictionCost | None  # None: the job does not run, and has no cost


@dataclass(frozen=True, slots=True)
class FollowUp:
    """Actions for a running attempt, requested by an observation. The driver runs them under the job's lease."""

    admit: bool = False  # authorize this driver's key on the hosts
    leave: tuple[str, ...] = ()  # hosts to stop because one of their peers failed
    grace: float = 0.0  # seconds until those are killed
    renew: bool = False  # extend the limit of max.unattended
    queue_cost: QueueCost | None = None


@dataclass(frozen=True, slots=True)
class Observation:
    """The observed state of one attempt.

    - PENDING: parts of it are missing; submit it again.
    - SCHEDULED: it is complete and waits; `reason` and `detail` have the cause.
    - COMPLETED and FAILED: it has ended.
    """

    state: State
    hosts: tuple[HostView, ...] = ()
    started: float = 0.0  # when all hosts ran; 0: not yet, or unknown
    saved: int = -1
    reason: Reason | None = None
    host: str = ""  # the first host that failed
    detail: str = ""
    active: bool = True  # part of the job runs, or will run without a driver
    held: bool = False  # hardware is held for the job's next attempt; `stop` releases it when the job ends
    ended: float = 0.0  # when it ended, according to the place; 0: unknown
    ran: float = 0.0  # seconds since it started, except those that its machine slept
    warning: str = ""  # shown to the user although the attempt runs or completed
    learned: Mapping[str, Any] = field(default_factory=dict)  # to be stored with this attempt
    next: Mapping[str, Any] | None = None  # to be stored with the next attempt, which the place began by itself
    follow_up: FollowUp | None = None  # of a running attempt: for `Place.follow_up`
    waits_as: Cause = Cause.WAITING  # how the time of a waiting attempt is counted
    save_held: float | None = None  # seconds for which the save since the last observation blocked training


@dataclass(frozen=True, slots=True)
class Line:
    """A line of a host's log."""

    host: str
    text: str
    at: float = 0.0  # when it was printed, in seconds since the epoch; 0: unknown


@dataclass(frozen=True, slots=True)
class Unmanaged:
    """A job in a place that another program sent. It is listed, and changed only once it is adopted."""

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


class Executes(Protocol):
    """The additional interface of a place with the capability `executes`."""

    def execute(self, handle: Handle, host: str, command: Sequence[str], *, terminal: bool) -> int:
        """Run a command on a running host with the input and output of this process, and return its exit code.

        `terminal`: this process has a terminal, and the command gets one too.
        """


class Place(Protocol):
    name: str
    capabilities: Capabilities

    def prepare(self, plan: Plan) -> Plan:
        """Return the plan with what the place decides before a send. Reject what cannot run there."""

    def taken(self, plan: Plan) -> frozenset[str]:
        """Return all ids in use there, including those of other users."""

    def check(self, plan: Plan) -> Sequence[Problem]:
        """Return what the place would reject, checked with the final names. Create nothing."""

    def check_code(self, plan: Plan) -> None:
        """Check, before another attempt, that the job's code still exists.

        Raises:
            Invalid: The code that the job was sent with is gone.
        """

    def share_code(self, plan: Plan) -> str:
        """Upload the job's staged code to where a driver on another machine can find it, before the job is recorded.

        Return why it cannot be uploaded. Empty: it is uploaded, or no other machine will need it.

        Raises:
            Transient: Not now; try again.
        """

    def group(self, plan: Plan) -> str | None:
        """Return the group of the plan; attempts of one group are observed in one call. None: unreachable from here."""

    def submit(self, handle: Handle) -> Mapping[str, Any] | None:
        """Start the attempt. Repeated calls with the same handle have no effect.

        Return what is to be stored with the attempt, so that an attempt that is removed later is not started again.

        Raises:
            Invalid: The attempt can never be started as it is.
        """

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        """Observe many attempts of one group in one call.

        An attempt that cannot be observed gets an error, which is no evidence of its end.
        """

    def follow_up(self, handle: Handle, what: FollowUp) -> None:
        """Run the actions that an observation requested. Idempotent."""

    def logs(self, handle: Handle, host: str = "", *, follow: bool = False) -> Iterator[Line]: ...

    def tail(self, handle: Handle, host: str, size: int) -> Sequence[str]:
        """Return the last lines of a host's log, about `size` bytes. Do not read the rest of the log."""

    def stop(self, handle: Handle, grace: float) -> None:
        """Stop all hosts, and kill them after the grace period. An attempt that has not begun never begins.

        If the record of the attempt has ended, release what is held for the job.
        """

    def lose(self, handle: Handle, host: str) -> None:
        """Kill a host's program without warning, as if the host had lost power. Only with `kills_hosts`."""

    def sweep(
        self, known: Callable[[], Known], complain: Callable[[str], None] = ..., claim: Claim = ...
    ) -> Sequence[str]:
        """Remove what carries this store's mark and belongs to no active attempt, and return what was removed.

        Remove only what two looks found, a minimum age apart. `known` is called after looking. Failures to look or to
        remove go to `complain`, and the sweep continues. `claim` is taken around each removal.
        """

    def workdir(self, plan: Plan, origin: int) -> str: ...

    def notes(self, plan: Plan) -> Sequence[str]:
        """Return remarks for the user about how this job behaves in this place."""

    def limit(self, plan: Plan) -> str:
        """Return what ends without a driver, and when; "" if nothing here costs money."""

    def forget(self, handle: Handle) -> str:
        """Return what the user may have to remove by hand after the job is closed without contact to the place.

        Raises:
            Conflict: Hardware is held for the job, although none of its hosts are visible.
        """
