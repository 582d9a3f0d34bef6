"""Carry out decisions about jobs in their places, and record failures to do so."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from msgspec.structs import replace

from tpukit.core.errors import Invalid, TpukitError
from tpukit.jobs import history
from tpukit.jobs.controller.decide import Act
from tpukit.jobs.reasons import Reason, State, message
from tpukit.jobs.records import Job, Outcome
from tpukit.places.base import FollowUp, Handle, Place


@dataclass(frozen=True, slots=True)
class Order:
    """An act with its parameters."""

    act: Act
    grace: float
    follow_up: FollowUp | None = None


def act(place: Place, handle: Handle, order: Order) -> Callable[[Job], Job] | None:
    """Carry out an act, and return the change that it makes to the record, if any. Idempotent."""
    if order.act is Act.SUBMIT:
        learned = place.submit(handle)
        return partial(_with_learned, handle.attempt.number, learned) if learned else None
    if order.follow_up is not None:
        place.follow_up(handle, order.follow_up)
    else:
        place.stop(handle, order.grace)
    return None


def _with_learned(number: int, learned: Mapping[str, Any], job: Job) -> Job:
    """Add to the record what its place needs to recognise the attempt, unless the attempt has ended."""
    attempt = job.attempt
    if attempt is None or attempt.number != number or attempt.state.ended:
        return job
    attempt = replace(attempt, learned=history.learned(attempt.learned, learned))
    return replace(job, attempts=(*job.attempts[:-1], attempt))


def failed(job: Job, order: Order, error: TpukitError, now: float) -> Job | None:
    """Return the closing record of a job that can never start as it is, or None when the act is to be retried.

    The job makes room for the next. Parts of it may have started: the record ends once nothing of it runs.
    """
    attempt = job.attempt
    if order.act is not Act.SUBMIT or not isinstance(error, Invalid) or attempt is None:
        return None
    said = f"{message(Reason.CANNOT_START)}: {error}"
    ended = replace(attempt, state=State.FAILED, reason=Reason.CANNOT_START, detail=str(error), ended=now, started=0.0)
    outcome = Outcome(State.FAILED, Reason.CANNOT_START, said)
    return replace(job, attempts=(*job.attempts[:-1], ended), outcome=outcome, message=said)
