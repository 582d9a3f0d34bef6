"""Predictions that were made, and whether they held."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import msgspec
from msgspec.structs import replace

from tpukit.core.errors import Conflict, NotFound
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store import Kind, Store, everything
from tpukit.teams.forecast.predict import HORIZON, Start

TOLERANCE_SECONDS = 60.0
"""Predictions are shown to the minute, and starts are seen some seconds late."""
KEPT_SECONDS = 90 * 86_400.0


class Predicted(msgspec.Struct, frozen=True):
    """The first prediction of a job's start. Times are seconds since the epoch."""

    job: str
    team: str
    at: float  # when it was predicted
    soonest: float
    likely: float
    latest: float
    started: float = 0.0
    state: str = "open"  # open, held, missed; dropped: the job ended before it started


PREDICTED: Kind[Predicted] = Kind("predictions", Predicted, state="state", order="at")
msgspec.json.Decoder(Predicted)


@dataclass(frozen=True, slots=True)
class Score:
    held: int
    missed: int

    @property
    def words(self) -> str:
        total = self.held + self.missed
        if not total:
            return "no prediction has been compared with a start yet"
        return f"{100 * self.held / total:.0f} % of {total} starts were in their predicted range; 80 % should be"


def keep(store: Store, starts: Mapping[str, Start], waiting: Iterable[Job], now: float) -> None:
    """Keep the prediction of each waiting job that has none yet."""
    known = {entry.key for entry in everything(store, PREDICTED)}
    for job in waiting:
        start = starts.get(f"{job.team}/{job.id}")
        if start and job.id not in known and not admitted(job):
            with suppress(Conflict):  # another driver keeps it
                store.create(PREDICTED, job.id, _record(job, start, now))


def score(store: Store, now: float) -> None:
    """Compare open predictions with the jobs that have started since, and forget old ones."""
    for entry in everything(store, PREDICTED):
        one = entry.value
        if one.state == "open":
            with suppress(Conflict):
                if (compared := _compared(one, _job(store, one.job), now)) != one:
                    store.put(PREDICTED, entry, compared)
        elif now - one.at > KEPT_SECONDS:
            with suppress(Conflict, NotFound):
                store.delete(PREDICTED, entry)


def scored(store: Store) -> Score:
    states = [entry.value.state for entry in everything(store, PREDICTED)]
    return Score(states.count("held"), states.count("missed"))


def admitted(job: Job) -> float:
    """Return when a job first left the queue; 0 if it has not, or its record no longer tells."""
    if job.folded or not job.attempts:
        return 0.0
    first = job.attempts[0]
    return next((at for at in (first.marks.making, first.marks.placed, first.started) if at), 0.0)


def _record(job: Job, start: Start, now: float) -> Predicted:
    soonest, likely, latest = (min(at, now + HORIZON) for at in (start.soonest, start.likely, start.latest))
    return Predicted(job.id, job.team, now, soonest, likely, latest)


def _compared(one: Predicted, job: Job | None, now: float) -> Predicted:
    at = admitted(job) if job else 0.0
    if at:
        held = one.soonest - TOLERANCE_SECONDS <= at <= one.latest + TOLERANCE_SECONDS
        return replace(one, started=at, state="held" if held else "missed")
    if job is None or job.state.ended or job.folded:
        return replace(one, state="dropped")
    late = now > one.latest + TOLERANCE_SECONDS and one.latest < one.at + HORIZON
    return replace(one, state="missed") if late and not math.isinf(one.latest) else one


def _job(store: Store, name: str) -> Job | None:
    try:
        return store.get(JOBS, name).value
    except NotFound:
        return None
