"""Drives jobs: the kernel with places behind it. Several may run at once, on one machine or many."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from msgspec.structs import replace as with_fields

from tpukit.clock import Clock
from tpukit.control import Decision, Hooks, Kernel, Leases
from tpukit.errors import Invalid, NotFound, TpukitError
from tpukit.jobs.decide import Act, Step, decide
from tpukit.jobs.liveness import Liveness
from tpukit.places.base import Handle, Observation, Place
from tpukit.plan import Plan
from tpukit.reasons import Reason, State, message
from tpukit.records import ACTIVE, JOBS, Job, Outcome
from tpukit.store import Entry, Holder, Store, everything


@dataclass(frozen=True, slots=True)
class _Do:
    act: Act
    grace: float


class _Plans:
    """Plans as they were read from records. A round asks for each several times, and they seldom change."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Mapping[str, Any], Plan]] = {}

    def of(self, job: Job) -> Plan:
        known = self._read.get(job.id)
        if known is None or known[0] != job.plan:
            known = self._read[job.id] = job.plan, Plan.from_json(job.plan)
        return known[1]

    def handle(self, job: Job) -> Handle:
        """Of its last attempt."""
        return Handle(self.of(job), job.attempts[-1])

    def keep_only(self, job_ids: Container[str]) -> None:
        self._read = {job_id: read for job_id, read in self._read.items() if job_id in job_ids}


class JobUse:
    """What the kernel needs to know of jobs."""

    kind = JOBS
    states: Sequence[str] = ACTIVE

    def __init__(
        self,
        places: Mapping[str, Place],
        clock: Clock,
        parallel: int = 0,
        observed: Callable[[str, Observation], None] = lambda job_id, seen: None,
    ) -> None:
        self._places, self._clock = places, clock
        self._observed = observed
        self._parallel = parallel  # jobs that may use this machine at once; 0: all
        self._liveness, self._plans = Liveness(), _Plans()

    def select(self, entries: Sequence[Entry[Job]]) -> Sequence[Entry[Job]]:
        """In the order they were sent; those for this machine as many as it takes at once."""
        active = {entry.key for entry in entries}
        self._liveness.keep_only(active)
        self._plans.keep_only(active)
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
        place = self._places.get(job.place)
        if place is None:
            return None
        group = place.group(self._plans.of(job))
        return None if group is None else f"{job.place} {group}".strip()

    def observe(self, group: str, entries: Sequence[Entry[Job]]) -> Mapping[str, Observation | TpukitError]:
        running = [entry.value for entry in entries if entry.value.attempts]
        if not running:
            return {}
        place = self._places[running[0].place]
        seen = place.observe([self._plans.handle(job) for job in running])
        return {job.id: self._with_idle(job, one) for job, one in zip(running, seen, strict=True)}

    def decide(self, job: Job, seen: Observation | None, now: float) -> Decision[Job]:
        if job.state not in ACTIVE:  # somebody closed it since we listed it
            return Decision(job)
        if seen is None and job.attempts:  # somebody launched one since we looked: look first
            return Decision(job)
        step: Step = decide(job, self._plans.of(job).spec, seen, now)
        return Decision(step.job, _Do(step.act, step.grace) if step.act else None, step.note)

    def act(self, job: Job, act: _Do) -> None:
        place = self._places[job.place]
        if act.act is Act.SUBMIT:
            place.submit(self._plans.handle(job))
        else:
            place.stop(self._plans.handle(job), act.grace)

    def failed(self, job: Job, act: _Do, error: TpukitError, now: float) -> Decision[Job] | None:
        """A job that can never start as it is ends with the reason, and makes room for the next."""
        attempt = job.attempt
        if act.act is not Act.SUBMIT or not isinstance(error, Invalid) or attempt is None:
            return None
        said = f"{message(Reason.CANNOT_START)}: {error}"
        ended = with_fields(
            attempt, state=State.FAILED, reason=Reason.CANNOT_START, detail=str(error), ended=now, started=0.0
        )
        closing = with_fields(
            job,
            attempts=(*job.attempts[:-1], ended),
            outcome=Outcome(State.FAILED, Reason.CANNOT_START, said),
            message=said,
        )
        return Decision(closing, note=said)  # some of it may have started: the record ends when nothing runs

    def troubled(self, job: Job, text: str) -> Job:
        return with_fields(job, message=text) if not job.state.ended else job

    def _uses_this_machine(self, job: Job) -> bool:
        place = self._places.get(job.place)
        return place is not None and place.capabilities.uses_this_machine

    def _with_idle(self, job: Job, seen: Observation | TpukitError) -> Observation | TpukitError:
        if isinstance(seen, TpukitError) or job.attempt is None:
            return seen
        seen = replace(seen, hosts=self._liveness.count(job.id, job.attempt.number, seen.hosts))
        self._observed(job.id, seen)
        return seen


class Driver:
    """The kernel over jobs, and what is done beside it: sweeping, and giving jobs back."""

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
        hooks: Hooks | None = None,
    ) -> None:
        self._store, self._places, self._complain = store, places, complain
        self.leases = Leases(store, holder, clock)
        if workers:
            self.leases.keep()
        self.kernel: Kernel[Job, Observation] = Kernel(
            store,
            JobUse(places, clock, parallel, observed),
            self.leases,
            clock,
            workers=workers,
            report=report,
            complain=complain,
            hooks=hooks,
        )

    def round(self, only: Sequence[str] = ()) -> int:
        """One step for each active job (or those named); how many are still active."""
        return self.kernel.round(only)

    def sweep(self) -> list[str]:
        """Remove what no active job knows of; what was removed. A place that is away costs the others nothing."""
        removed = []
        for place in self._places.values():
            try:
                removed += [f"{place.name}: {name}" for name in place.sweep(partial(self._known, place.name))]
            except TpukitError as error:
                self._complain(place.name, f"it was not swept: {error}")
        return removed

    def holds(self, job_id: str) -> bool:
        """Whether this process drives it, or nobody does."""
        lease = self._store.lease(f"{JOBS.name}/{job_id}")
        return lease is None or lease.holder.name == self.leases.holder.name

    def close(self) -> None:
        self.kernel.close()

    def _known(self, place: str) -> list[Handle]:
        active = everything(self._store, JOBS, states=ACTIVE)
        return [Handle.of(entry.value) for entry in active if entry.value.place == place and entry.value.attempts]


def find(store: Store, job_id: str) -> Job:
    try:
        return store.get(JOBS, job_id).value
    except NotFound as error:
        raise NotFound(f"there is no job {job_id}", hint="see `tpu job list`") from error
