"""Drive jobs: the kernel with places behind it. Several drivers may run at once, on one or more machines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial

from msgspec.structs import replace

from tpukit.core import fence
from tpukit.core.clock import Clock
from tpukit.core.errors import NotFound, TpukitError
from tpukit.jobs import history
from tpukit.jobs.controller import act as acting
from tpukit.jobs.controller.act import Order
from tpukit.jobs.controller.decide import decide
from tpukit.jobs.controller.observe import Observer
from tpukit.jobs.controller.plans import Plans
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import State
from tpukit.jobs.records import ACTIVE, JOBS, Job, is_active
from tpukit.kernel import Decision, Hooks, Kernel, Leases
from tpukit.kernel.store import Entry, Holder, Store, mark
from tpukit.places.base import Known, Observation, Place

ENDED_JOBS = 500
"""Number of the newest ended jobs whose plans tell a sweep where to look."""
_ENDED = tuple(state for state in State if state.ended)


class JobUse:
    """Adapter of jobs to the kernel."""

    kind = JOBS
    states: Sequence[str] = ACTIVE

    def __init__(
        self,
        places: Mapping[str, Place],
        parallel: int,
        observed: Callable[[str, Observation], None],
        held: Callable[[Job], str],
    ) -> None:
        self._places = places
        self._held = held  # reason why a job that has not begun must wait; empty: none
        self._observer = Observer(places, observed)
        self._parallel = parallel  # most jobs that may use this machine at once; 0: no limit

    def select(self, entries: Sequence[Entry[Job]]) -> Sequence[Entry[Job]]:
        """Return entries in the order they were sent, and at most `parallel` jobs on this machine."""
        self._observer.keep_only([entry.value for entry in entries])
        if not self._parallel:
            return entries
        local = [entry.value for entry in entries if self._uses_this_machine(entry.value)]
        free = self._parallel - sum(1 for job in local if job.attempts)
        chosen = []
        for entry in entries:
            job = entry.value
            waits = self._uses_this_machine(job) and not job.attempts and job.wanted == "run"
            if waits and free <= 0:
                continue
            free -= waits
            chosen.append(entry)
        return chosen

    def group(self, job: Job) -> str | None:
        return self._observer.group(job)

    def observe(self, group: str, entries: Sequence[Entry[Job]]) -> Mapping[str, Observation | TpukitError]:
        return self._observer.observe([entry.value for entry in entries])

    def decide(self, job: Job, seen: Observation | None, now: float) -> Decision[Job]:
        if seen is None and job.attempts:  # another driver launched an attempt: observe it first
            return Decision(job)
        if not job.attempts and job.wanted == "run" and (why := self._held(job)):
            return Decision(history.bounded(replace(job, message=why)))
        step = decide(job, self._observer.plans.of(job).spec, seen, now)
        return Decision(step.job, Order(step.act, step.grace, step.follow_up) if step.act else None, step.note)

    def act(self, job: Job, act: Order) -> Callable[[Job], Job] | None:
        return acting.act(self._places[job.place], self._observer.plans.handle(job), act)

    def failed(self, job: Job, act: Order, error: TpukitError, now: float) -> Decision[Job] | None:
        closing = acting.failed(job, act, error, now)
        return Decision(history.bounded(closing), note=closing.message) if closing else None

    def troubled(self, job: Job, text: str) -> Job:
        return history.bounded(replace(job, message=text)) if not job.state.ended else job

    def _uses_this_machine(self, job: Job) -> bool:
        """Report whether the job takes room on this machine. Unreadable jobs and jobs of other machines do not."""
        place = self._places.get(job.place)
        try:
            return place is not None and place.capabilities.uses_this_machine and self.group(job) is not None
        except TpukitError:
            return False


class Driver:
    """The kernel over jobs, with sweeping and release."""

    def __init__(
        self,
        store: Store,
        places: Mapping[str, Place],
        clock: Clock,
        holder: Holder,
        *,
        parallel: int = 0,
        workers: int = 0,
        report: Callable[[str, str], None] = lambda job_id, text: None,
        complain: Callable[[str, str], None] = lambda job_id, text: None,
        observed: Callable[[str, Observation], None] = lambda job_id, seen: None,
        held: Callable[[Job], str] = lambda job: "",
        hooks: Hooks | None = None,
    ) -> None:
        self._store, self._places, self._complain = store, places, complain
        self._read = Plans()  # plans of the jobs that sweeps know
        self.leases = Leases(store, holder, clock)
        self.kernel: Kernel[Job, Observation] = Kernel(
            store,
            JobUse(places, parallel, observed, held),
            self.leases,
            clock,
            workers=workers,
            report=report,
            complain=complain,
            hooks=hooks,
        )

    def round(self, only: Sequence[str] = ()) -> int:
        """Run one step for each active job (or those named), and return how many are still active."""
        return self.kernel.round(only)

    def sweep(self) -> list[str]:
        """Remove what no active job knows, and return it. An unreachable place does not hold up the others."""
        removed = []
        for place in self._places.values():
            try:
                known, complain = partial(self._known, place.name), partial(self._complain, place.name)
                swept = place.sweep(known, complain, self._claim)
                removed += [f"{place.name}: {name}" for name in swept]
            except TpukitError as error:
                self._complain(place.name, f"its remains could not be removed: {error}")
        return removed

    def close(self) -> None:
        self.kernel.close()

    @contextmanager
    def _claim(self, job_id: str) -> Iterator[bool]:
        """Hold the lease of a job to be swept, under the fence, because a person may resume the job meanwhile."""
        name = f"{JOBS.name}/{job_id}"
        lease = None if self.leases.holds(name) else self.leases.hold(name)  # held: this process drives it
        if lease is None:
            yield False
            return
        try:
            with fence.held(partial(self.leases.check, lease)):
                yield not is_active(self._store, job_id)
        finally:
            self.leases.release(name)

    def _known(self, place: str) -> Known:
        """Return the jobs known in a place. An unreadable record counts as active in every place: its own is unknown.

        Raises:
            Conflict: The store was moved, so its records are out of date.
        """
        mark.refuse_if_moved(self._store)
        page = self._store.list(JOBS, states=ACTIVE)
        active, broken = list(page.entries), [one.key for one in page.broken]
        while page.next:
            page = self._store.list(JOBS, states=ACTIVE, after=page.next)
            active += page.entries
            broken += [one.key for one in page.broken]
        handles = []
        for job in (entry.value for entry in active if entry.value.place == place and entry.value.attempts):
            try:
                handles.append(self._read.handle(job))
            except (TpukitError, ValueError, TypeError, KeyError, AttributeError):  # a plan of a newer version
                broken.append(job.id)
        lately = self._store.list(JOBS, states=_ENDED, newest=True, limit=ENDED_JOBS).entries
        ended = [*self._plans(place, [entry.value for entry in lately])]
        self._read.keep_only({entry.key for entry in (*active, *lately)})
        return Known(handles, frozenset(broken), ended)

    def _plans(self, place: str, jobs: Sequence[Job]) -> Iterator[Plan]:
        for job in jobs:
            if job.place == place:
                with suppress(TpukitError, ValueError, TypeError, KeyError, AttributeError):
                    yield self._read.of(job)


def find(store: Store, job_id: str) -> Job:
    try:
        return store.get(JOBS, job_id).value
    except NotFound as error:
        raise NotFound(f"there is no job {job_id}", hint="see `tpu job list`") from error
