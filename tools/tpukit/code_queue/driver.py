"""The supervisor of the queue: the kernel over its jobs. One process leads, others stand by.

It accepts jobs that plain clients wrote, reassigns jobs of dead workers, and ends jobs that cannot run. If a place
starts a worker for each job, it requests that too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from typing import Any, Protocol, cast

from msgspec.structs import replace

from tpukit.code_queue import claims, slices
from tpukit.code_queue.decide import Act, Outcome, Seen, Step, decide, finish, unfit
from tpukit.code_queue.records import ACTIVE, ENDED, PENDING, RUNNING, TPU_JOBS, QueuedJob
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Invalid, TpukitError
from tpukit.jobs.reasons import Reason
from tpukit.kernel import Decision, Hooks, Kernel, Leases
from tpukit.kernel.store import Entry, Event, Holder, Kind, Lease, Store, T

LEADER = "queue/leader"
LEADER_SECONDS = 15.0


class Starter(Protocol):
    """A place that starts a worker for each job."""

    def observe(self, entries: Sequence[Entry[QueuedJob]]) -> Mapping[str, tuple[bool, Reason | None, str]]:
        """Return by key: whether the place has a worker for it, why the place gave up, and its message."""

    def start(self, key: str, job: QueuedJob) -> None:
        """Start a worker. Idempotent."""

    def stop(self, key: str, job: QueuedJob) -> None: ...


class QueueUse:
    """The queue as the kernel drives it."""

    kind = TPU_JOBS
    states: Sequence[str] = ACTIVE

    def __init__(self, store: Store, holder: Holder, starter: Starter | None = None) -> None:
        self._store, self._holder, self._starter = store, holder, starter

    def select(self, entries: Sequence[Entry[QueuedJob]]) -> Sequence[Entry[QueuedJob]]:
        return sorted(entries, key=lambda entry: entry.value.rank)

    def group(self, job: QueuedJob) -> str | None:
        return "queue"

    def observe(self, group: str, entries: Sequence[Entry[QueuedJob]]) -> Mapping[str, Observed | TpukitError]:
        placed = self._starter.observe(entries) if self._starter else {}
        leased = {lease.name for lease in self._store.leases()}
        workers_are = slices.offered(leased)
        seen: dict[str, Observed | TpukitError] = {}
        for entry in entries:
            try:
                held = claims.lease_name(entry.key) in leased or (
                    entry.value.status == RUNNING and not claims.revoke(self._store, self._holder, entry.key)
                )
            except TpukitError as error:
                seen[entry.key] = error
                continue
            started, failure, detail = placed.get(entry.key, (None, None, ""))
            missing = "" if self._starter else _missing(entry.value, workers_are)
            seen[entry.key] = Observed(entry.key, entry.value, Seen(held, started, failure, detail, missing))
        return seen

    def decide(self, job: QueuedJob, seen: Observed | None, now: float) -> Decision[QueuedJob]:
        # The observation belongs to another attempt: the next round observes this one.
        if seen is None or _turn(job) != _turn(seen.job):
            return Decision(job)
        step: Step = decide(seen.key, job, seen.seen, now)
        return Decision(step.job, (step.act, seen.key) if step.act else None, step.note)

    def act(self, job: QueuedJob, act: tuple[Act, str]) -> None:
        if self._starter is None:
            return
        what, key = act
        if what is Act.START:
            self._starter.start(key, job)
        else:
            self._starter.stop(key, job)

    def failed(
        self, job: QueuedJob, act: tuple[Act, str], error: TpukitError, now: float
    ) -> Decision[QueuedJob] | None:
        if act[0] is not Act.START or not isinstance(error, Invalid):
            return None
        ended = finish(act[1], job, Outcome(Reason.CANNOT_START, error=str(error)), now)
        return Decision(ended, note=str(error))

    def troubled(self, job: QueuedJob, text: str) -> QueuedJob:
        return replace(job, error=text) if job.status in ACTIVE else job


def _missing(job: QueuedJob, workers_are: Collection[str]) -> str:
    """Return the slice that the job needs and no worker offers; empty if it can run."""
    if slices.fits(job, "") or any(slices.fits(job, tpu) for tpu in workers_are):
        return ""
    return slices.requested(job).partition(":")[0]


def _turn(job: QueuedJob) -> tuple[object, ...]:
    return job.status, job.attempts, job.schedules


class Observed:
    """An observation, with the record it belongs to."""

    __slots__ = ("job", "key", "seen")

    def __init__(self, key: str, job: QueuedJob, seen: Seen) -> None:
        self.key, self.job, self.seen = key, job, seen


class QueueRecords:
    """The queue's documents for the kernel. A document that cannot be written as decided ends with an error message."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.get, self.list, self.lease = store.get, store.list, store.lease

    def put(
        self,
        kind: Kind[T],
        entry: Entry[T],
        value: T,
        *,
        lease: Lease | None = None,
        events: Sequence[Event] = (),
    ) -> Entry[T]:
        try:
            return self._store.put(kind, entry, value, lease=lease, events=events)
        except Invalid as error:
            assert isinstance(value, QueuedJob)  # the only kind that this kernel drives
            smaller, ended = unfit(cast("Entry[QueuedJob]", entry), value, str(error), self._store.now())
            written = self._store.put(TPU_JOBS, smaller, ended, lease=lease, events=events)
            return cast("Entry[T]", written)

    def end_strangers(self) -> None:
        """End documents with an unknown status: no list of active jobs would ever include them."""
        for entry in self._store.strangers(TPU_JOBS).entries:
            known = ", ".join((*ACTIVE, *ENDED))
            job = replace(entry.value, status=PENDING)
            with suppress(Conflict):  # its application rewrote it meanwhile
                self._store.put(
                    TPU_JOBS, *_refused(entry, job, f"status: {entry.value.status!r} is not one of {known}")
                )


def _refused(entry: Entry[QueuedJob], job: QueuedJob, why: str) -> tuple[Entry[QueuedJob], QueuedJob]:
    smaller, ended = unfit(entry, job, why, job.updated_at)
    return smaller, replace(ended, error=why)


class Leadership:
    """One lease for all keys: its holder supervises."""

    def __init__(self, store: Store, holder: Holder, clock: Clock) -> None:
        self._leases = Leases(store, holder, clock, seconds=LEADER_SECONDS)
        self._clock = clock
        self._rests = float("-inf")  # until then another process may lead

    def leading(self) -> bool:
        return self._leases.holds(LEADER)

    def hold(self, name: str) -> Lease | None:
        return self._leases.hold(LEADER) if self._clock.elapsed() >= self._rests else None

    def check(self, lease: Lease) -> float:
        return self._leases.check(lease)

    def lost(self, name: str) -> None:
        self._leases.lost(LEADER)

    def release(self, *names: str) -> None:
        """Do nothing: one lease is for all keys."""

    def resign(self, *names: str) -> None:
        """Release the lease, and let another process lead before this one tries again."""
        self._rests = self._clock.elapsed() + 2 * LEADER_SECONDS
        self._leases.release(LEADER)

    def close(self) -> None:
        self._leases.close()


class Driver:
    def __init__(
        self,
        store: Store,
        clock: Clock,
        holder: Holder,
        *,
        starter: Starter | None = None,
        workers: int = 0,
        report: Callable[[str, str], None] = lambda key, text: None,
        complain: Callable[[str, str], None] = lambda key, text: None,
        hooks: Hooks | None = None,
    ) -> None:
        self.leader = Leadership(store, holder, clock)
        self._records = QueueRecords(store)
        self.kernel: Kernel[QueuedJob, Any] = Kernel(
            self._records,
            QueueUse(store, holder, starter),
            self.leader,
            clock,
            workers=workers,
            report=report,
            complain=complain,
            hooks=hooks,
        )

    def round(self) -> int:
        """Take one step for each active job, and return how many are left. Do nothing while another process leads."""
        if self.leader.hold(LEADER) is not None:
            self._records.end_strangers()
        return self.kernel.round()

    def close(self) -> None:
        self.kernel.close()
