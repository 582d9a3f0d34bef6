"""Decide the next step of a job from its record and its place's observation. Pure.

A record says that a job has ended only when no process of the job is left. Until then `outcome` holds how it will end,
and every driver has its place stop it in each round.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from enum import StrEnum

from msgspec.structs import replace

from tpukit.jobs import history, marks, rules
from tpukit.jobs.reasons import Reason, State, message
from tpukit.jobs.records import Attempt, Job, Outcome
from tpukit.jobs.rules import Action
from tpukit.jobs.spec import JobSpec
from tpukit.places.base import FollowUp, HostView, Observation

HANG_GRACE = 1.0
"""Seconds of grace for a hung host, which does not save anyway."""


EXCUSED_MOST = 3600.0
"""Longest time for which computing or saving without a step excuses an attempt, because a program may also spin.

If the job file sets max.stall, nothing is excused.
"""
PACES = 3.0
"""Multiple of a host's longest earlier silence for which the host may be silent."""


class Act(StrEnum):
    SUBMIT = "submit"
    STOP = "stop"
    FOLLOW_UP = "follow up"


@dataclass(frozen=True, slots=True)
class Step:
    """The next record, written first, and the act that follows."""

    job: Job
    act: Act | None = None
    grace: float = 0.0
    note: str = ""
    follow_up: FollowUp | None = None


def decide(job: Job, spec: JobSpec, seen: Observation | None, now: float) -> Step:
    """Return the next step of an active job. `seen` is its last attempt in its place, None without an attempt."""
    step = _decide(job, spec, _within_bounds(seen), now)
    return dataclasses.replace(step, job=history.bounded(step.job))


def _within_bounds(seen: Observation | None) -> Observation | None:
    """Cut texts to the length that the record holds: longer ones would differ from it in every round."""
    if seen is None:
        return None
    detail, warning = (history.cut(text, history.DETAIL_BYTES) for text in (seen.detail, seen.warning))
    if (detail, warning) == (seen.detail, seen.warning):
        return seen
    return dataclasses.replace(seen, detail=detail, warning=warning)


def _decide(job: Job, spec: JobSpec, seen: Observation | None, now: float) -> Step:
    attempt = job.attempt
    if attempt is None:
        return _begin(job, spec, seen, now)
    assert seen is not None
    if seen.learned and not attempt.state.ended:
        attempt = replace(attempt, learned=history.learned(attempt.learned, seen.learned))
        job = _with(job, attempt)
    if job.outcome:
        return _close(job, spec, seen, now)
    if attempt.state.ended:
        return _begin(job, spec, seen, now)
    if (marked := marks.noted(attempt, seen, now)) is not attempt:
        attempt, job = marked, _with(job, marked)
    if attempt.stopping or job.wanted == "stop":
        return _leave(job, spec, attempt, seen, now)
    if seen.state.ended:
        return _end(job, spec, attempt, seen, now)
    if seen.state is State.PENDING:
        waits = replace(job, message=seen.detail) if seen.detail else job
        return Step(waits, Act.SUBMIT, note=f"waits: {seen.detail}" if waits.message != job.message else "")
    if seen.state is State.SCHEDULED:
        waits = replace(job, state=State.SCHEDULED, reason=seen.reason, message=seen.detail)
        note = f"waits: {seen.detail}" if seen.detail and seen.detail != job.message else ""
        return Step(waits, Act.FOLLOW_UP if seen.follow_up else None, note=note, follow_up=seen.follow_up)
    return _running(job, spec, attempt, seen, now)


def _running(job: Job, spec: JobSpec, attempt: Attempt, seen: Observation, now: float) -> Step:
    attempt = replace(
        attempt, state=State.RUNNING, started=seen.started or attempt.started, saved=max(attempt.saved, seen.saved)
    )
    running = replace(_with(job, attempt), state=State.RUNNING, reason=None, message=seen.detail)
    if spec.max.runtime and seen.ran > spec.max.runtime:
        return _stop(running, spec, marks.told(attempt, seen.hosts, now), Reason.TIMEOUT)
    if stalled := _stalled(seen.hosts, spec.max.stall, early="stall" in spec.max.given):
        return _stop(running, spec, marks.told(attempt, seen.hosts, now), Reason.HANG, stalled)
    act = Act.FOLLOW_UP if seen.follow_up else None
    if seen.warning and seen.warning != attempt.warning:
        warned = _with(running, replace(attempt, warning=seen.warning))
        return Step(warned, act, note=f"attempt {attempt.number}: {seen.warning}", follow_up=seen.follow_up)
    note = f"attempt {attempt.number} runs" if job.state is not State.RUNNING else ""
    if seen.detail:
        note = f"attempt {attempt.number}: {seen.detail}" if seen.detail != job.message else ""
    return Step(running, act, note=note, follow_up=seen.follow_up)


def _begin(job: Job, spec: JobSpec, seen: Observation | None, now: float) -> Step:
    """Start the next attempt if it is due. A person's request takes precedence over the rules."""
    if job.wanted == "stop":
        said = message(Reason.CANCELLED)
        return _finish(job, spec, Outcome(State.CANCELLED, Reason.CANCELLED, said), seen, now)
    if job.wanted in (Action.RESUME, Action.RERUN) and job.attempts:
        following = rules.following(job.attempts, Action(job.wanted), asked=True)
        return _launch(job, following, f"{job.wanted} as asked", now)
    if not job.attempts:
        return _launch(job, rules.following((), Action.RERUN), "first attempt", now)
    verdict = rules.decide(job.attempts, spec.rule, spec.max.restarts, job.folded)
    ended = job.attempts[-1].ended
    if ended <= now < verdict.not_before:  # a clock that was set back must not prolong the wait
        return Step(job)
    return _launch(job, rules.following(job.attempts, verdict.action), str(verdict.action), now)


def _launch(job: Job, attempt: Attempt, why: str, now: float) -> Step:
    attempt = marks.launched(job, attempt, now)
    launched = replace(
        job,
        attempts=(*job.attempts, attempt),
        state=State.SCHEDULED,
        wanted="run",
        reason=None,
        message="",
        ended=0.0,
    )
    return Step(
        history.compacted(launched), Act.SUBMIT, note=f"attempt {attempt.number} ({why}, stage {attempt.stage})"
    )


def _stop(job: Job, spec: JobSpec, attempt: Attempt, reason: Reason, host: str = "") -> Step:
    attempt = replace(attempt, stopping=reason, host=host)
    note = f"attempt {attempt.number} is being stopped: {message(reason, host)}"
    return Step(_with(job, attempt), Act.STOP, _grace(reason, spec), note)


def _grace(reason: Reason, spec: JobSpec) -> float:
    return HANG_GRACE if reason is Reason.HANG else float(spec.max.grace)


def _leave(job: Job, spec: JobSpec, attempt: Attempt, seen: Observation, now: float) -> Step:
    """Stop the attempt, and end it when its place has nothing of it any more."""
    if attempt.stopping is None:
        if seen.state.ended and not seen.active:  # it ended before the stop
            return _end(job, spec, attempt, seen, now)
        return _stop(job, spec, marks.told(attempt, seen.hosts, now), Reason.CANCELLED)
    if seen.active:
        return Step(job, Act.STOP, _grace(attempt.stopping, spec))
    return _end(job, spec, attempt, seen, now)


def _end(job: Job, spec: JobSpec, attempt: Attempt, seen: Observation, now: float) -> Step:
    reason, host, detail = seen.reason or Reason.CANCELLED, seen.host, seen.detail
    if attempt.stopping and reason is not Reason.DONE:
        reason, host, detail = attempt.stopping, attempt.host, ""
    attempt = replace(
        attempt,
        state=State.COMPLETED if reason is Reason.DONE else State.FAILED,
        started=attempt.started or seen.started,
        ended=seen.ended or now,
        saved=max(attempt.saved, seen.saved),
        step=max((host.step for host in seen.hosts if host.step is not None), default=-1),
        warning=seen.warning or attempt.warning,
        reason=reason,
        host=host,
        detail=detail,
    )
    job = _with(job, attempt)
    if job.wanted == "stop":
        state = State.COMPLETED if reason is Reason.DONE else State.CANCELLED
        return _finish(job, spec, Outcome(state, reason, message(reason, host)), seen, attempt.ended)
    begun = seen.next is not None
    verdict = rules.decide(job.attempts, spec.rule, spec.max.restarts, job.folded, begun=begun)
    if verdict.action is Action.NOTHING:
        assert verdict.reason is not None
        return _finish(job, spec, Outcome(verdict.state, verdict.reason, verdict.message), seen, attempt.ended)
    if seen.next is not None:  # the place started the next attempt by itself
        following = replace(rules.following(job.attempts, verdict.action), learned=history.learned({}, seen.next))
        step = _launch(job, following, f"{verdict.message}; {verdict.action}", now)
        return Step(step.job, note=step.note)
    return Step(replace(job, state=State.PENDING, reason=verdict.reason, message=verdict.message), note=verdict.message)


def _finish(job: Job, spec: JobSpec, outcome: Outcome, seen: Observation | None, at: float) -> Step:
    """End the job with this outcome; the record ends when nothing of the job runs."""
    if seen is not None and (seen.active or seen.held):
        closing = replace(job, outcome=outcome, message=outcome.message)
        return Step(closing, Act.STOP, float(spec.max.grace), outcome.message)
    return Step(_ended(job, outcome, at), note=outcome.message)


def _close(job: Job, spec: JobSpec, seen: Observation, now: float) -> Step:
    assert job.outcome is not None
    if seen.active or seen.held:
        return Step(job, Act.STOP, float(spec.max.grace))
    return Step(_ended(job, job.outcome, now))


def _ended(job: Job, outcome: Outcome, at: float) -> Job:
    return replace(
        job,
        state=outcome.state,
        reason=outcome.reason,
        message=outcome.message,
        ended=at,
        wanted="run",
        outcome=None,
    )


def _with(job: Job, attempt: Attempt) -> Job:
    return replace(job, attempts=(*job.attempts[:-1], attempt))


def _stalled(hosts: tuple[HostView, ...], stall: float, *, early: bool) -> str:
    """Return the host that hangs, or "" while any host moves: a stopped host first, else the one furthest behind.

    Only hosts with readable steps can stall, and `idle` counts only while their reports could be read. A host that
    reports by printing has to be silent for longer than its own pace. `early`: the job file sets max.stall, so it also
    holds before the second step, when no pace is known.
    """
    reporting = [host for host in hosts if host.step is not None or (early and host.early)]
    if not reporting or any(host.idle < _patience(host, stall, early) for host in reporting):
        return ""
    return min(reporting, key=lambda host: (host.state != "stopped", not host.frozen, host.moved, host.step or 0)).name


def _patience(host: HostView, stall: float, given: bool) -> float:
    if given and host.early:
        return stall
    excused = 0.0 if given else min(host.excused, EXCUSED_MOST)
    return max(stall, PACES * host.pace) + excused
