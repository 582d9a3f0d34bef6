"""Goodput: every second of a job has one cause, and the sums equal wall time exactly."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tpukit.goodput import sums
from tpukit.goodput.causes import WEEK_MS, Cause, by_week, ms, of_attempt, week_of, week_start
from tpukit.jobs import history, rules
from tpukit.jobs.controller.decide import decide
from tpukit.jobs.plan import make
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import Attempt, Job, Marks
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import HostView, Observation

SPEC = JobSpec.from_json({"name": "train", "tpu": "v4-8", "command": ["true"], "capacity": "spot"})
PLAN = make(SPEC, Settings(), "local")
SENT = 1_800_000_000.0
NOTHING = Observation(State.PENDING, active=False)


def job(**fields: Any) -> Job:
    return Job(PLAN.id, "local", "t", "me", SENT, PLAN.to_json(), **fields)


def host(step: int | None = None, at: float = 0.0, **fields: Any) -> HostView:
    return HostView("h", 0, 0, "running", step=step, moved=at, **fields)


def lived(*seen: tuple[float, Observation | None]) -> Job:
    """Return a job after its driver observed these states, at these seconds after submission."""
    record = job()
    for at, one in seen:
        record = decide(record, SPEC, (one or NOTHING) if record.attempts else None, SENT + at).job
    return record


def running(step: int | None, at: float, **fields: Any) -> Observation:
    return Observation(State.RUNNING, (host(step, SENT + at, **fields),), started=SENT + 30)


def spent(record: Job, now: float) -> dict[Cause, float]:
    return {cause: amount / 1000 for cause, amount in sums.of_job(record, SENT + now).spent.items()}


def lost(step: int, at: float, saved: int = -1) -> Observation:
    hosts = (host(step, SENT + at),)
    reason = Reason.PREEMPTED
    return Observation(State.FAILED, hosts, SENT + 30, saved, reason, "h", active=False, ended=SENT + at)


def test_each_phase_of_an_attempt_is_the_time_between_what_was_observed():
    waits = Observation(State.SCHEDULED, waits_as=Cause.WAITING)
    makes = Observation(State.SCHEDULED, waits_as=Cause.MAKING)
    starts = Observation(State.SCHEDULED, waits_as=Cause.STARTING)
    record = lived(
        *((0, None), (1, waits), (5, makes), (20, starts), (31, running(None, 0)), (33, running(None, 33, early=True))),
        *((50, running(1, 48)), (60, running(9, 60)), (72, lost(12, 70, saved=8))),
    )
    assert spent(record, 75) == {
        Cause.WAITING: 10.0,  # 5 before its slices were created, and 5 after the loss
        Cause.MAKING: 15.0,
        Cause.STARTING: 13.0,
        Cause.COMPILING: 15.0,
        Cause.NEW: 22.0,
    }


def test_steps_that_an_attempt_before_had_done_are_repeated_until_the_first_new_one():
    record = lived((0, None), (40, running(1, 40)), (72, lost(12, 70)), (80, None), (90, Observation(State.PENDING)))
    assert record.attempts[-1].number == 1
    again = [(100, running(9, 99)), (110, running(12, 108)), (120, running(13, 119))]
    for at, seen in again:
        record = decide(record, SPEC, seen, SENT + at).job
    assert spent(record, 130)[Cause.REPEATED] == 20.0
    assert record.attempts[-1].marks.advanced == SENT + 119


def test_hang_counts_from_the_last_step_and_leaving_from_the_request():
    record = lived((0, None), (40, running(1, 40)), (50, running(5, 50)))
    record = decide(record, SPEC, running(5, 50, idle=1e6), SENT + 90).job
    assert record.attempts[-1].stopping is Reason.HANG
    left = Observation(State.FAILED, (host(5, SENT + 50),), SENT + 30, active=False, ended=SENT + 95)
    record = decide(record, SPEC, left, SENT + 95).job
    assert (spent(record, 95)[Cause.HUNG], spent(record, 95)[Cause.STOPPED]) == (40.0, 5.0)


def test_program_that_shows_no_steps_is_neither_starting_nor_useless():
    record = lived((0, None), (31, running(None, 0)), (500, running(None, 0)))
    assert spent(record, 500)[Cause.UNSEEN] == 470.0


def test_time_between_an_end_and_a_persons_request_is_not_counted():
    record = lived((0, None), (40, running(1, 40)))
    done = Observation(State.COMPLETED, (host(9, SENT + 60),), SENT + 30, reason=Reason.DONE, active=False)
    record = decide(record, SPEC, replace_ended(done, 60), SENT + 60).job
    assert record.state is State.COMPLETED
    asked = replace(record, state=State.PENDING, wanted="resume", ended=0.0)
    record = decide(asked, SPEC, done, SENT + 9000).job
    assert sum(spent(record, 9010).values()) == 70.0


def replace_ended(seen: Observation, at: float) -> Observation:
    from dataclasses import replace as changed

    return changed(seen, ended=SENT + at)


def test_measured_saves_are_taken_from_new_steps_and_never_exceed_them():
    marks = Marks(since=SENT, placed=SENT, stepped=SENT + 10, first=0, advanced=SENT + 10, saves=2, saving=4.0)
    attempt = Attempt(0, 0, 0, started=SENT + 1, ended=SENT + 20, marks=marks)
    assert sum(one.length for one in of_attempt(attempt, 0) if one.cause is Cause.SAVING) == 4000
    more = replace(attempt, marks=replace(marks, saving=1e6))
    assert {one.cause for one in of_attempt(more, 0)} == {Cause.STARTING, Cause.COMPILING, Cause.SAVING}


def test_week_begins_on_monday_utc():
    monday = 1_793_577_600  # 2026-11-02 00:00 UTC
    assert week_start(week_of(ms(monday))) == ms(monday)
    assert week_of(ms(monday - 0.001)) == week_of(ms(monday)) - 1


seconds = st.floats(0, 5000) | st.sampled_from([0.0, 1e300, -1.0, float("inf"), float("nan"), 1.8e9])
marks = st.builds(
    *(Marks, seconds, st.integers(-1, 9), seconds, seconds, seconds, seconds, st.integers(-1, 9)),
    *(seconds, seconds, seconds, st.integers(0, 3), seconds),
)


@given(marks, seconds, seconds, seconds, st.sampled_from([None, *Reason]))
def test_spans_of_any_record_fill_its_window_without_gap_or_overlap(some, started, ended, until, reason):
    """Records come from other versions and other clocks: times may be in any order or missing."""
    attempt = Attempt(0, 0, 0, started=started, ended=ended, marks=some, reason=reason)
    spans = of_attempt(attempt, until)
    for before, after in pairwise(spans):
        assert before.end == after.start
    assert all(one.length > 0 for one in spans)
    weeks = by_week(spans)
    assert sum(sum(week.values()) for week in weeks.values()) == sum(one.length for one in spans)


def history_of(seed: int) -> tuple[Job, list[tuple[Job, float]]]:
    """Return a job after seeded weeks of losses, and copies of its record along the way."""
    dice = random.Random(seed)
    record, now, step, copies = job(), 0.0, 0, []
    for _ in range(dice.randrange(1, 60)):
        record = decide(record, SPEC, NOTHING if record.attempts else None, SENT + now).job
        for state in (Cause.WAITING, Cause.MAKING, Cause.STARTING):
            now += dice.expovariate(1 / 600)
            if dice.random() < 0.8:
                record = decide(record, SPEC, Observation(State.SCHEDULED, waits_as=state), SENT + now).job
        started = SENT + now
        for _ in range(dice.randrange(0, 12)):
            now += dice.expovariate(1 / 5000)
            step += dice.randrange(0, 9)
            held = dice.choice([None, dice.uniform(-1, 9)])
            seen = Observation(State.RUNNING, (host(step, SENT + now),), started, save_held=held, saved=step // 2)
            record = decide(record, SPEC, seen, SENT + now).job
            copies.append((record, SENT + now))
        now += dice.expovariate(1 / 900)
        reason = dice.choice([Reason.PREEMPTED, Reason.HOST_LOST, Reason.PEER_LOST, Reason.EVICTED])
        ended = Observation(
            *(State.FAILED, (host(step, SENT + now),), started, step // 2, reason, "h"), active=False, ended=SENT + now
        )
        record = decide(record, SPEC, ended, SENT + now + dice.random()).job
        copies.append((record, SENT + now))
        step = max(0, step - dice.randrange(0, 20))
        now += 100
        if record.state.ended:
            break
    return record, copies


@pytest.mark.parametrize("seed", range(20))
def test_seeded_weeks_of_losses_sum_to_wall_time_to_the_millisecond_folded_or_not(seed):
    record, copies = history_of(seed)
    for one, at in copies:
        now = at + 60
        goodput = sums.of_job(one, now)
        assert goodput.wall == sums.wall(one, now)
        assert min(goodput.spent.values()) > 0
        # Nothing requests another attempt here, so all time since submission counts.
        assert goodput.wall == ms(one.ended or now) - ms(one.created)
    parts = [sums.of_job(one, SENT + 9e6) for one in (record, copies[0][0])]
    assert sums.total(parts).wall == sum(part.wall for part in parts)


@pytest.mark.parametrize("seed", range(20))
def test_weeks_of_a_job_add_up_to_the_job_cause_by_cause_from_any_start(seed):
    record, _ = history_of(seed)
    now = SENT + 9e6
    for since in (0.0, record.created, record.created + 7 * 86_400.5, now + 1):
        whole: dict[Cause, int] = {}
        for week, part in sums.by_week(record, now, since).items():
            assert 0 < part.wall <= WEEK_MS, week
            for cause, amount in part.spent.items():
                whole[cause] = whole.get(cause, 0) + amount
        assert whole == sums.of_job(record, now, since).spent


def test_folded_record_measures_what_the_attempts_measured():
    record, _ = history_of(3)
    assert record.folded and record.folded.count > 0
    unfolded = history.fold(None, ())
    assert unfolded.spent == {}
    goodput = sums.of_job(record, SENT + 9e6)
    recent = sums.of_job(record, SENT + 9e6, since=record.attempts[0].marks.since)
    assert goodput.measured.running > recent.measured.running > 0
    assert goodput.measured.losses >= recent.measured.losses


def test_compacting_a_record_moves_time_and_loses_none():
    attempts: tuple[Attempt, ...] = ()
    at = SENT
    for number in range(30):
        following = rules.following(attempts, rules.Action.RESUME)
        marks = Marks(since=at, placed=at + 1, stepped=at + 3, first=number, advanced=at + 3, base=number - 1)
        ended = replace(following, started=at + 2, ended=at + 86_400.25, reason=Reason.PREEMPTED, marks=marks)
        attempts, at = (*attempts, ended), ended.ended
    every = job(attempts=attempts)
    compacted = history.compacted(every)
    assert len(compacted.attempts) == history.ATTEMPTS_KEPT
    assert sums.of_job(compacted, at) == sums.of_job(every, at)
    assert sums.wall(compacted, at) == sums.wall(every, at) == 30 * 86_400_250
