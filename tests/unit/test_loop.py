"""The loop's decision, as a table of steps, and what holds on every walk through it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.loop import HANG_GRACE, Act, Step, decide
from tpukit.places.base import HostView, Observation
from tpukit.reasons import MEANINGS, Reason, State
from tpukit.spec import JobSpec
from tpukit.store import Attempt, Job

NOW = 1000.0
SPEC = JobSpec.from_json(
    {
        "name": "train",
        "tpu": "v4-16",
        "command": ["x"],
        "rule": "pre",
        "max": {"runtime": "1h", "restarts": 1, "stall": "60s", "grace": "20s"},
    }
)
FRESH = Job("train-1", "local", "team", "me", created=900.0, plan={}, tags=("t",))
LIVE = replace(FRESH, state=State.SCHEDULED, attempts=(Attempt(0, stage=0, origin=0),))
RUNNING = replace(
    FRESH, state=State.RUNNING, attempts=(Attempt(0, stage=0, origin=0, state=State.RUNNING, started=950.0),)
)
ABSENT = Observation(State.PENDING, (HostView("h0", 0, 0, "waiting"), HostView("h1", 0, 1, "waiting")))


def seen(state: State = State.RUNNING, *, started: float = 950.0, **fields: object) -> Observation:
    hosts = (HostView("h0", 0, 0, "running", pid=11), HostView("h1", 0, 1, "running", pid=12))
    return Observation(state, **{"hosts": hosts, "started": started, **fields})


def ended(reason: Reason, **fields: object) -> Observation:
    state = State.COMPLETED if reason is Reason.DONE else State.FAILED
    return seen(state, reason=reason, host="" if reason is Reason.DONE else "h1", **fields)


def after(reason: Reason, *, at: float = NOW, job: Job = RUNNING) -> Job:
    return decide(job, SPEC, ended(reason), at).job


def test_decide_new_job_launches_the_first_attempt():
    step = decide(FRESH, SPEC, None, NOW)
    assert step.act is Act.SUBMIT
    assert step.job == replace(FRESH, state=State.SCHEDULED, attempts=(Attempt(0, stage=0, origin=0),))
    assert step.note


def test_decide_new_job_that_is_stopped_ends_without_an_attempt():
    step = decide(replace(FRESH, wanted="stop"), SPEC, None, NOW)
    assert (step.act, step.job.state, step.job.reason) == (Act.NOTHING, State.CANCELLED, Reason.CANCELLED)
    assert (step.job.attempts, step.job.ended, step.job.wanted) == ((), NOW, "run")


def test_decide_attempt_that_is_not_all_there_is_submitted_again():
    assert decide(LIVE, SPEC, ABSENT, NOW) == Step(LIVE, Act.SUBMIT)


def test_decide_attempt_begins_to_run():
    step = decide(LIVE, SPEC, seen(started=990.0, saved=7), NOW)
    assert (step.act, step.job.state) == (Act.NOTHING, State.RUNNING)
    assert step.job.attempt == Attempt(0, stage=0, origin=0, state=State.RUNNING, started=990.0, saved=7)
    assert step.note == "attempt 0 runs"


def test_decide_attempt_goes_on_running_changes_nothing():
    assert decide(RUNNING, SPEC, seen(), NOW) == Step(RUNNING)


def test_decide_saved_step_never_goes_back():
    far = replace(RUNNING, attempts=(replace(RUNNING.attempts[0], saved=50),))
    assert decide(far, SPEC, seen(saved=-1), NOW).job.attempt.saved == 50
    assert decide(far, SPEC, ended(Reason.HOST_LOST, saved=20), NOW).job.attempt.saved == 50


def test_decide_longest_runtime_passed_stops_it():
    step = decide(RUNNING, SPEC, seen(started=NOW - 3601), NOW)
    assert (step.act, step.grace, step.job.attempt.stopping) == (Act.STOP, 20.0, Reason.TIMEOUT)
    over = decide(step.job, SPEC, ended(Reason.CANCELLED), NOW)
    assert (over.job.state, over.job.reason) == (State.FAILED, Reason.TIMEOUT)


@pytest.mark.parametrize(
    ("moved", "told"),
    [
        ((NOW - 61, NOW - 70), "h1"),  # nobody moved: the one that stopped first
        ((NOW - 61, NOW - 61), "h0"),  # at once: the one that is behind
        ((NOW - 59, NOW - 500), ""),  # somebody moves
    ],
)
def test_decide_no_host_moves_stops_the_attempt_as_hung(moved, told):
    hosts = (
        HostView("h0", 0, 0, "running", pid=1, step=3, moved=moved[0]),
        HostView("h1", 0, 1, "running", pid=2, step=4, moved=moved[1]),
    )
    step = decide(RUNNING, SPEC, seen(hosts=hosts), NOW)
    if not told:
        assert step == Step(RUNNING)
        return
    assert (step.act, step.grace, step.job.attempt.stopping) == (Act.STOP, HANG_GRACE, Reason.HANG)
    over = decide(step.job, SPEC, ended(Reason.HOST_LOST), NOW)
    assert (over.job.attempt.reason, over.job.attempt.host) == (Reason.HANG, told)
    assert told in over.note


def test_decide_hang_with_a_stopped_host_is_blamed_on_it():
    """Hosts that move in step report the same step at the same moment; the process table knows more."""
    hosts = tuple(
        HostView(f"h{index}", 0, index, state, pid=1, step=4, moved=NOW - 100 + index)
        for index, state in enumerate(["running", "stopped", "running"])
    )
    assert decide(RUNNING, SPEC, seen(hosts=hosts), NOW).job.attempt.host == "h1"


def test_decide_hosts_that_report_no_steps_cannot_hang():
    assert decide(RUNNING, SPEC, seen(), NOW + 3000) == Step(RUNNING)


def test_decide_told_to_leave_for_a_hang_stays_told_though_hosts_move_again():
    """What is written down is done, also when whoever wrote it died before doing it."""
    told = replace(RUNNING, attempts=(replace(RUNNING.attempts[0], stopping=Reason.HANG, host="h1"),))
    assert decide(told, SPEC, seen(), NOW) == Step(told, Act.STOP, HANG_GRACE)


def test_decide_stop_wish_tells_the_hosts_once_in_the_record():
    wished = replace(RUNNING, wanted="stop")
    first = decide(wished, SPEC, seen(), NOW)
    assert (first.act, first.grace, first.job.attempt.stopping) == (Act.STOP, 20.0, Reason.CANCELLED)
    assert decide(first.job, SPEC, seen(), NOW + 1) == Step(first.job, Act.STOP, 20.0)


@pytest.mark.parametrize(
    ("reason", "state", "said"),
    [
        (Reason.CANCELLED, State.CANCELLED, Reason.CANCELLED),
        (Reason.HOST_LOST, State.CANCELLED, Reason.CANCELLED),  # killed after its grace
        (Reason.DONE, State.COMPLETED, Reason.DONE),  # it was quicker
    ],
)
def test_decide_stopped_job_ends(reason, state, said):
    told = decide(replace(RUNNING, wanted="stop"), SPEC, seen(), NOW).job
    step = decide(told, SPEC, ended(reason), NOW + 5)
    assert (step.act, step.job.state, step.job.reason, step.job.ended) == (Act.NOTHING, state, said, NOW + 5)
    assert step.job.wanted == "run"


def test_decide_stop_wish_that_comes_after_a_failure_names_the_failure():
    step = decide(replace(RUNNING, wanted="stop"), SPEC, ended(Reason.USER_ERROR), NOW)
    assert step.job.state is State.CANCELLED
    assert step.job.attempt.reason is Reason.USER_ERROR
    assert "h1" in step.note


def test_decide_end_well_completes_the_job():
    step = decide(RUNNING, SPEC, ended(Reason.DONE), NOW)
    assert (step.act, step.job.state, step.job.ended, step.job.attempt.ended) == (
        Act.NOTHING,
        State.COMPLETED,
        NOW,
        NOW,
    )


def test_decide_end_seen_at_the_first_look_knows_when_it_started():
    step = decide(LIVE, SPEC, ended(Reason.DONE, started=960.0, saved=9), NOW)
    assert (step.job.attempt.started, step.job.attempt.saved) == (960.0, 9)


def test_decide_lost_host_is_followed_by_another_attempt():
    lost = decide(RUNNING, SPEC, ended(Reason.HOST_LOST, detail="killed by signal 9"), NOW)
    assert (lost.act, lost.job.state, lost.job.reason) == (Act.NOTHING, State.PENDING, Reason.HOST_LOST)
    assert lost.job.attempt.detail == "killed by signal 9"
    again = decide(lost.job, SPEC, None, NOW)
    assert (again.act, again.job.state) == (Act.SUBMIT, State.SCHEDULED)
    assert again.job.attempt == Attempt(1, stage=1, origin=0)
    assert again.job.reason is None


def test_decide_user_error_waits_before_it_is_resumed():
    failed = after(Reason.USER_ERROR)
    assert decide(failed, SPEC, None, NOW + 0.5) == Step(failed)
    assert decide(failed, SPEC, None, NOW + 1.0).act is Act.SUBMIT


def test_decide_stop_wish_while_waiting_for_the_next_attempt_ends_at_once():
    step = decide(replace(after(Reason.USER_ERROR), wanted="stop"), SPEC, None, NOW)
    assert (step.act, step.job.state, len(step.job.attempts)) == (Act.NOTHING, State.CANCELLED, 1)


@pytest.mark.parametrize(("wish", "stage", "origin"), [("resume", 1, 0), ("rerun", 0, 1)])
def test_decide_asked_attempt_goes_before_the_rules(wish, stage, origin):
    again = replace(after(Reason.DONE), state=State.PENDING, wanted=wish)
    step = decide(again, SPEC, None, NOW)
    assert step.act is Act.SUBMIT
    assert step.job.attempt == Attempt(1, stage=stage, origin=origin, asked=True)
    assert step.job.wanted == "run"


@pytest.mark.parametrize("wish", ["resume", "rerun"])
def test_decide_job_stopped_before_its_first_attempt_can_be_asked_for_again(wish):
    step = decide(replace(FRESH, wanted=wish), SPEC, None, NOW)
    assert (step.act, step.job.attempt, step.job.wanted) == (Act.SUBMIT, Attempt(0, stage=0, origin=0), "run")


# What can happen between two ticks: the place moves on (or not), a person wishes, the process that decided dies
# before it acts.
looks = st.sampled_from(["absent", "running", "moving", "stuck", *Reason])
ticks = st.tuples(looks, st.sampled_from(["", "", "", "stop"]), st.booleans(), st.floats(0, 100))


def look(word: str, now: float, told: bool) -> Observation:
    if word == "absent":
        return ABSENT
    if word in ("running", "moving", "stuck"):
        moved = {"running": None, "moving": now, "stuck": now - 61}[word]
        views = tuple(
            HostView(f"h{index}", 0, index, "running", pid=1, step=None if moved is None else 5, moved=moved or 0.0)
            for index in range(2)
        )
        return seen(hosts=views, started=now - 1)
    return ended(Reason(word))


@given(st.lists(ticks, min_size=1, max_size=60))
def test_walk_any_sequence_keeps_the_record_sane(sequence):
    job, now = FRESH, NOW
    for word, wish, dies, passes in sequence:
        now += passes
        if wish:
            job = replace(job, wanted=wish)
        live = job.attempt is not None and not job.attempt.state.ended
        observed = look(word, now, told=False) if live else None
        step = decide(job, SPEC, observed, now)
        assert step == decide(job, SPEC, observed, now)

        assert [attempt.number for attempt in step.job.attempts] == list(range(len(step.job.attempts)))
        assert all(attempt.state.ended and attempt.reason for attempt in step.job.attempts[:-1])
        assert len(step.job.attempts) - len(job.attempts) in (0, 1)
        if live:
            assert len(step.job.attempts) == len(job.attempts)
        if step.act is Act.SUBMIT:
            assert not step.job.attempt.state.ended
        if step.act is Act.STOP:
            assert step.job.attempt.stopping
        if step.job.state.ended:
            assert step.act is Act.NOTHING
            assert step.job.ended == now
            assert step.job.reason is not None
            assert step.job.message
            if job.wanted == "stop":
                assert step.job.state in (State.CANCELLED, State.COMPLETED)
            return

        if dies and step.act is not Act.NOTHING:
            # The record was written and nothing was done: the next look finds the place as it was.
            unchanged = ABSENT if step.act is Act.SUBMIT else observed
            later = decide(step.job, SPEC, unchanged, now + 1)
            assert (later.job, later.act, later.grace) == (step.job, step.act, step.grace)
        job = step.job


@given(st.lists(ticks, max_size=30), st.sampled_from(list(Reason)))
def test_walk_stop_wish_is_the_end_as_soon_as_the_place_says_so(sequence, reason):
    job, now = FRESH, NOW
    for word, _, _, passes in sequence:
        now += passes
        live = job.attempt is not None and not job.attempt.state.ended
        job = decide(job, SPEC, look(word, now, told=False) if live else None, now).job
        if job.state.ended:
            return
    job = replace(job, wanted="stop")
    if job.attempt is not None and not job.attempt.state.ended:
        step = decide(job, SPEC, seen(), now)
        assert step.act is Act.STOP
        step = decide(step.job, SPEC, ended(reason), now)
    else:
        step = decide(job, SPEC, None, now)
    assert step.job.state is (State.COMPLETED if step.job.reason is Reason.DONE else State.CANCELLED)
    assert step.act is Act.NOTHING


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason is not Reason.EVICTED])
def test_decide_end_by_any_reason_gives_the_state_of_the_table(reason):
    step = decide(RUNNING, replace_rule("pass", restarts=0), ended(reason), NOW)
    assert (step.job.state, step.job.reason) == (MEANINGS[reason].state, reason)


def replace_rule(rule: str, restarts: int) -> JobSpec:
    return JobSpec.from_json(SPEC.to_json() | {"rule": rule, "max": {"restarts": restarts}})


def test_decide_attempt_that_waits_says_for_what_once_and_takes_no_step():
    waits = seen(State.SCHEDULED, detail="needs 16 chips of v4, none free")
    first = decide(LIVE, SPEC, waits, NOW)
    assert (first.act, first.job.state) == (Act.NOTHING, State.SCHEDULED)
    assert first.job.message == "needs 16 chips of v4, none free"
    assert first.note == "waits: needs 16 chips of v4, none free"
    assert decide(first.job, SPEC, waits, NOW + 1) == Step(first.job)
    assert decide(first.job, SPEC, seen(), NOW + 2).job.message == ""


def test_decide_place_that_went_on_by_itself_is_stopped_when_nothing_should_follow():
    gave_up = decide(RUNNING, replace_rule("pass", restarts=0), ended(Reason.PREEMPTED, followed=True), NOW)
    assert (gave_up.act, gave_up.job.state) == (Act.STOP, State.FAILED)
    goes_on = decide(RUNNING, SPEC, ended(Reason.PREEMPTED, followed=True), NOW)
    assert (goes_on.act, goes_on.job.state) == (Act.NOTHING, State.PENDING)
