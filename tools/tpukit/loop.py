"""Observe, decide, act, report. The only place where time passes and an action reaches a place.

`decide` is pure. What it decided is written before it is done, and everything done can be done again, so the loop may
be killed at any moment and started anywhere: the next tick finds the same record and takes the same step.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from functools import partial

from tpukit import rules
from tpukit.clock import Clock
from tpukit.errors import TpukitError
from tpukit.places.base import Handle, Observation, Place
from tpukit.reasons import Reason, State, message
from tpukit.rules import Action
from tpukit.spec import JobSpec
from tpukit.store import Attempt, Job, Store

HANG_GRACE = 1.0
"""A host that hangs will not save, however long it is given."""


class Act(StrEnum):
    NOTHING = "nothing"
    SUBMIT = "submit"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class Step:
    """What a tick does to one job: the record first, then the act."""

    job: Job
    act: Act = Act.NOTHING
    grace: float = 0.0
    note: str = ""


def decide(job: Job, spec: JobSpec, seen: Observation | None, now: float) -> Step:
    """The next step of a job that has not ended. `seen` is its last attempt as the place has it."""
    attempt = job.attempt
    if attempt is None or attempt.state.ended:
        return _begin(job, spec, now)
    assert seen is not None
    if seen.state.ended:
        return _end(job, spec, attempt, seen, now)
    if attempt.stopping:  # written down already, perhaps by a process that died before it could say so
        return Step(job, Act.STOP, _grace(attempt.stopping, spec))
    if job.wanted == "stop":
        return _stop(job, spec, attempt, Reason.CANCELLED)
    if seen.state is State.PENDING:
        return Step(job, Act.SUBMIT)
    if seen.state is State.SCHEDULED:
        waits = replace(job, state=State.SCHEDULED, message=seen.detail)
        return Step(waits, note=f"waits: {seen.detail}" if seen.detail and seen.detail != job.message else "")

    attempt = replace(attempt, state=State.RUNNING, started=seen.started, saved=max(attempt.saved, seen.saved))
    running = replace(_with(job, attempt), state=State.RUNNING, message="")
    if spec.max.runtime and now - seen.started > spec.max.runtime:
        return _stop(running, spec, attempt, Reason.TIMEOUT)
    if stalled := _stalled(seen, spec.max.stall, now):
        return _stop(running, spec, attempt, Reason.HANG, stalled)
    return Step(running, note=f"attempt {attempt.number} runs" if job.state is not State.RUNNING else "")


def _begin(job: Job, spec: JobSpec, now: float) -> Step:
    """Between attempts: what a person asked for goes before what the rules say."""
    if job.wanted == "stop":
        return Step(_ended(job, State.CANCELLED, Reason.CANCELLED, message(Reason.CANCELLED), now), note="stopped")
    if job.wanted in (Action.RESUME, Action.RERUN) and job.attempts:
        return _launch(job, rules.following(job.attempts, Action(job.wanted), asked=True), f"{job.wanted} as asked")
    if not job.attempts:
        return _launch(job, rules.following((), Action.RERUN), "first attempt")
    verdict = rules.decide(job.attempts, spec.rule, spec.max.restarts)
    if now < verdict.not_before:
        return Step(job)
    return _launch(job, rules.following(job.attempts, verdict.action), str(verdict.action))


def _launch(job: Job, attempt: Attempt, why: str) -> Step:
    job = replace(
        job, attempts=(*job.attempts, attempt), state=State.SCHEDULED, wanted="run", reason=None, message="", ended=0.0
    )
    note = f"attempt {attempt.number} ({why}, stage {attempt.stage})"
    return Step(job, Act.SUBMIT, note=note)


def _stop(job: Job, spec: JobSpec, attempt: Attempt, reason: Reason, host: str = "") -> Step:
    attempt = replace(attempt, stopping=reason, host=host)
    note = f"attempt {attempt.number} told to leave: {message(reason, host)}"
    return Step(_with(job, attempt), Act.STOP, _grace(reason, spec), note)


def _grace(reason: Reason, spec: JobSpec) -> float:
    return HANG_GRACE if reason is Reason.HANG else float(spec.max.grace)


def _end(job: Job, spec: JobSpec, attempt: Attempt, seen: Observation, now: float) -> Step:
    reason = seen.reason
    assert reason is not None
    if attempt.stopping and reason is not Reason.DONE:
        reason, host, detail = attempt.stopping, attempt.host, ""
    else:
        host, detail = seen.host, seen.detail
    attempt = replace(
        attempt,
        state=State.COMPLETED if reason is Reason.DONE else State.FAILED,
        started=attempt.started or seen.started,
        ended=now,
        saved=max(attempt.saved, seen.saved),
        reason=reason,
        host=host,
        detail=detail,
    )
    job = _with(job, attempt)
    if job.wanted == "stop":
        state, said = (State.COMPLETED if reason is Reason.DONE else State.CANCELLED), message(reason, host)
        return Step(_ended(job, state, reason, said, now), note=said)
    verdict = rules.decide(job.attempts, spec.rule, spec.max.restarts)
    if verdict.action is Action.NOTHING:
        ended = _ended(job, verdict.state, verdict.reason, verdict.message, now)
        # A place that has begun the next attempt by itself is told that nobody wants it.
        act = Act.STOP if seen.followed else Act.NOTHING
        return Step(ended, act, float(spec.max.grace), verdict.message)
    return Step(replace(job, state=State.PENDING, reason=verdict.reason, message=verdict.message), note=verdict.message)


def _ended(job: Job, state: State, reason: Reason | None, said: str, now: float) -> Job:
    return replace(job, state=state, reason=reason, message=said, ended=now, wanted="run")


def _with(job: Job, attempt: Attempt) -> Job:
    return replace(job, attempts=(*job.attempts[:-1], attempt))


def _stalled(seen: Observation, stall: float, now: float) -> str:
    """The host that hangs, when no host moved for so long: one that is stopped, or that which is furthest behind.

    Only hosts that report steps can stall.
    """
    reporting = [host for host in seen.hosts if host.step is not None]
    if not reporting or now - max(host.moved for host in reporting) < stall:
        return ""
    return min(reporting, key=lambda host: (host.state != "stopped", host.moved, host.step or 0)).name


class Loop:
    """Drives jobs. Several may run at once, on one machine or many: a job is driven by one at a time."""

    def __init__(
        self,
        store: Store,
        places: Mapping[str, Place],
        clock: Clock,
        *,
        parallel: int = 0,
        report: Callable[[str, str], None] = lambda job_id, text: None,
        complain: Callable[[str, str], None] = lambda job_id, text: None,
    ) -> None:
        self._store = store
        self._places = places
        self._clock = clock
        self._parallel = parallel  # jobs that may run on this machine at once; 0: all
        self._report = report  # told of each step taken
        self._complain = complain  # told once of what did not work and is tried again
        self._complaints: dict[str, str] = {}

    def tick(self, only: Sequence[str] = ()) -> int:
        """One step for each active job (or those named); how many are still active."""
        jobs = [self._store.get(job_id) for job_id in only] if only else list(self._store.jobs(active=True))
        jobs = [job for job in jobs if not job.state.ended and job.place in self._places]
        here = {job.id for job in jobs if self._places[job.place].on_this_machine}
        begun = sum(1 for job in jobs if job.id in here and job.attempts)
        free = self._parallel - begun if self._parallel and not only else len(jobs)
        for job in jobs:
            waits = not job.attempts and job.wanted == "run" and job.id in here
            if waits and free <= 0:
                continue
            free -= waits
            self._drive(job.id)
        return len(jobs)

    def sweep(self) -> list[str]:
        """Remove what no active job knows of; what was removed."""
        return [
            f"{place.name}: {name}"
            for place in self._places.values()
            for name in place.sweep(partial(self._known, place.name))
        ]

    def _known(self, place: str) -> list[Handle]:
        return [Handle.of(job) for job in self._store.jobs(active=True) if job.place == place and job.attempts]

    def _drive(self, job_id: str) -> None:
        with self._store.hold(job_id) as held:
            if held:
                try:
                    self._step(job_id)
                except TpukitError as error:  # it may go through at the next tick, and other jobs do not wait for it
                    if self._complaints.get(job_id) != str(error):
                        self._complain(job_id, str(error))
                    self._complaints[job_id] = str(error)
                else:
                    self._complaints.pop(job_id, None)

    def _step(self, job_id: str) -> None:
        job = self._store.get(job_id)
        if job.state.ended:
            return
        place = self._places[job.place]
        spec = JobSpec.from_json(job.plan["spec"])
        now = self._clock.now()
        running = job.attempt is not None and not job.attempt.state.ended
        seen = place.observe([Handle.of(job)])[0] if running else None
        step = decide(job, spec, seen, now)
        if step.job != job or step.note:
            # A person may have asked for something since we read the record: what they want is theirs to write.
            wanted = job.wanted
            job = self._store.change(
                job_id,
                lambda fresh: replace(
                    step.job, tags=fresh.tags, wanted=fresh.wanted if fresh.wanted != wanted else step.job.wanted
                ),
                note=step.note,
                at=now,
            )
        if step.note:
            self._report(job_id, step.note)
        if step.act is Act.SUBMIT:
            place.submit(Handle.of(job))
        elif step.act is Act.STOP:
            place.stop(Handle.of(job), step.grace)
