"""The next step of a job, as a table, and invariants of every walk through it."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tpukit.jobs.controller.decide import HANG_GRACE, Act, Step, decide
from tpukit.jobs.reasons import MEANINGS, Reason, State
from tpukit.jobs.records import Attempt, Job, Marks, Outcome
from tpukit.jobs.spec import JobSpec
from tpukit.places.base import HostView, Observation

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
MARKS = Marks(since=900.0, placed=950.0, announced=950.0, stepped=950.0, first=0, advanced=950.0, moved=950.0)
"""Marks of an attempt that shows steps: the next observations add none."""
RUNNING = replace(
    FRESH,
    state=State.RUNNING,
    attempts=(Attempt(0, stage=0, origin=0, state=State.RUNNING, started=950.0, marks=MARKS),),
)
ABSENT = Observation(State.PENDING, (HostView("h0", 0, 0, "waiting"), HostView("h1", 0, 1, "waiting")), active=False)


def seen(state: State = State.RUNNING, *, started: float = 950.0, **fields: object) -> Observation:
    hosts = (HostView("h0", 0, 0, "running", pid=11), HostView("h1", 0, 1, "running", pid=12))
    return Observation(state, **{"hosts": hosts, "started": started, "ran": 50.0, **fields})


def ended(reason: Reason, **fields: object) -> Observation:
    state = State.COMPLETED if reason is Reason.DONE else State.FAILED
    return seen(state, **{"reason": reason, "host": "" if reason is Reason.DONE else "h1", "active": False, **fields})


GONE = ended(Reason.CANCELLED)
"""An attempt that has ended, observed again."""


def after(reason: Reason, *, at: float = NOW, job: Job = RUNNING) -> Job:
    return decide(job, SPEC, ended(reason), at).job


def unmarked(job: Job) -> Attempt:
    """Return the last attempt without its time marks, which test_goodput.py covers."""
    return replace(job.attempts[-1], marks=Marks())


def test_decide_new_job_launches_the_first_attempt():
    step = decide(FRESH, SPEC, None, NOW)
    assert step.act is Act.SUBMIT
    assert unmarked(step.job) == Attempt(0, stage=0, origin=0)
    assert replace(step.job, attempts=()) == replace(FRESH, state=State.SCHEDULED)
    assert step.note


def test_decide_new_job_that_is_stopped_ends_without_an_attempt():
    step = decide(replace(FRESH, wanted="stop"), SPEC, None, NOW)
    assert (step.act, step.job.state, step.job.reason) == (None, State.CANCELLED, Reason.CANCELLED)
    assert (step.job.attempts, step.job.ended, step.job.wanted) == ((), NOW, "run")


def test_decide_attempt_that_is_not_all_there_is_submitted_again():
    assert decide(LIVE, SPEC, ABSENT, NOW) == Step(LIVE, Act.SUBMIT)


def test_decide_attempt_begins_to_run():
    step = decide(LIVE, SPEC, seen(started=990.0, saved=7), NOW)
    assert (step.act, step.job.state) == (None, State.RUNNING)
    assert unmarked(step.job) == Attempt(0, stage=0, origin=0, state=State.RUNNING, started=990.0, saved=7)
    assert step.note == "attempt 0 runs"


def test_decide_attempt_goes_on_running_changes_nothing():
    assert decide(RUNNING, SPEC, seen(), NOW) == Step(RUNNING)


def test_decide_saved_step_never_goes_back():
    far = replace(RUNNING, attempts=(replace(RUNNING.attempts[0], saved=50),))
    assert decide(far, SPEC, seen(saved=-1), NOW).job.attempt.saved == 50
    assert decide(far, SPEC, ended(Reason.HOST_LOST, saved=20), NOW).job.attempt.saved == 50


def test_decide_longest_runtime_passed_stops_it():
    step = decide(RUNNING, SPEC, seen(ran=3601.0), NOW)
    assert (step.act, step.grace, step.job.attempt.stopping) == (Act.STOP, 20.0, Reason.TIMEOUT)
    over = decide(step.job, SPEC, ended(Reason.CANCELLED), NOW)
    assert (over.job.state, over.job.reason) == (State.FAILED, Reason.TIMEOUT)


def test_decide_attempt_whose_start_nobody_knows_is_not_past_its_runtime():
    assert decide(RUNNING, SPEC, seen(started=0.0, ran=0.0), NOW + 1e9).act is None


@pytest.mark.parametrize(
    ("idle", "moved", "culprit"),
    [
        ((61, 70), (NOW - 61, NOW - 70), "h1"),  # no host moved: the first that stopped
        ((61, 61), (NOW - 61, NOW - 61), "h0"),  # at the same time: the one that is behind
        ((59, 500), (NOW - 59, NOW - 500), ""),  # one host moves
        ((0, 0), (NOW - 900, NOW - 900), ""),  # silence while no driver could listen is no evidence
    ],
)
def test_decide_no_host_moves_stops_the_attempt_as_hung(idle, moved, culprit):
    hosts = tuple(
        HostView(f"h{index}", 0, index, "running", pid=1, step=3 + index, moved=moved[index], idle=idle[index])
        for index in range(2)
    )
    step = decide(RUNNING, SPEC, seen(hosts=hosts), NOW)
    if not culprit:
        assert step == Step(RUNNING)
        return
    assert (step.act, step.grace, step.job.attempt.stopping) == (Act.STOP, HANG_GRACE, Reason.HANG)
    over = decide(step.job, SPEC, ended(Reason.HOST_LOST), NOW)
    assert (over.job.attempt.reason, over.job.attempt.host) == (Reason.HANG, culprit)
    assert culprit in over.note


def test_decide_hang_with_a_stopped_host_is_blamed_on_it():
    """Hosts in lockstep report the same step at the same moment; the process table tells them apart."""
    hosts = tuple(
        HostView(f"h{index}", 0, index, state, pid=1, step=4, moved=NOW - 100 + index, idle=100.0 - index)
        for index, state in enumerate(["running", "stopped", "running"])
    )
    assert decide(RUNNING, SPEC, seen(hosts=hosts), NOW).job.attempt.host == "h1"


def test_decide_hosts_that_report_no_steps_cannot_hang():
    assert decide(RUNNING, SPEC, seen(), NOW + 3000) == Step(RUNNING)


def test_decide_told_to_leave_for_a_hang_stays_told_though_hosts_move_again():
    """A recorded decision is carried out, even when its writer died before acting."""
    told = replace(RUNNING, attempts=(replace(RUNNING.attempts[0], stopping=Reason.HANG, host="h1"),))
    assert decide(told, SPEC, seen(), NOW) == Step(told, Act.STOP, HANG_GRACE)


def test_decide_stop_request_tells_the_hosts_once_in_the_record():
    asked = replace(RUNNING, wanted="stop")
    first = decide(asked, SPEC, seen(), NOW)
    assert (first.act, first.grace, first.job.attempt.stopping) == (Act.STOP, 20.0, Reason.CANCELLED)
    assert decide(first.job, SPEC, seen(), NOW + 1) == Step(first.job, Act.STOP, 20.0)


@pytest.mark.parametrize(
    ("reason", "state", "said"),
    [
        (Reason.CANCELLED, State.CANCELLED, Reason.CANCELLED),
        (Reason.HOST_LOST, State.CANCELLED, Reason.CANCELLED),  # killed after its grace period
        (Reason.DONE, State.COMPLETED, Reason.DONE),  # it completed before the stop
    ],
)
def test_decide_stopped_job_ends(reason, state, said):
    told = decide(replace(RUNNING, wanted="stop"), SPEC, seen(), NOW).job
    step = decide(told, SPEC, ended(reason), NOW + 5)
    assert (step.act, step.job.state, step.job.reason, step.job.ended) == (None, state, said, NOW + 5)
    assert step.job.wanted == "run"


def test_decide_stop_request_that_comes_after_a_failure_names_the_failure():
    step = decide(replace(RUNNING, wanted="stop"), SPEC, ended(Reason.USER_ERROR), NOW)
    assert step.job.state is State.CANCELLED
    assert step.job.attempt.reason is Reason.USER_ERROR
    assert "h1" in step.note


def test_decide_end_well_completes_the_job():
    step = decide(RUNNING, SPEC, ended(Reason.DONE), NOW)
    assert (step.act, step.job.state, step.job.ended, step.job.attempt.ended) == (
        None,
        State.COMPLETED,
        NOW,
        NOW,
    )


def test_decide_end_seen_at_the_first_look_knows_when_it_started():
    step = decide(LIVE, SPEC, ended(Reason.DONE, started=960.0, saved=9), NOW)
    assert (step.job.attempt.started, step.job.attempt.saved) == (960.0, 9)


def test_decide_lost_host_is_followed_by_another_attempt():
    lost = decide(RUNNING, SPEC, ended(Reason.HOST_LOST, detail="killed by signal 9"), NOW)
    assert (lost.act, lost.job.state, lost.job.reason) == (None, State.PENDING, Reason.HOST_LOST)
    assert lost.job.attempt.detail == "killed by signal 9"
    again = decide(lost.job, SPEC, GONE, NOW)
    assert (again.act, again.job.state) == (Act.SUBMIT, State.SCHEDULED)
    assert unmarked(again.job) == Attempt(1, stage=1, origin=0, action="reapply")
    assert again.job.reason is None


def test_decide_user_error_waits_before_it_is_resumed():
    failed = after(Reason.USER_ERROR)
    assert decide(failed, SPEC, GONE, NOW + 0.5) == Step(failed)
    assert decide(failed, SPEC, GONE, NOW + 1.0).act is Act.SUBMIT


def test_decide_clock_that_was_set_back_makes_nobody_wait_longer():
    assert decide(after(Reason.USER_ERROR), SPEC, GONE, NOW - 86400).act is Act.SUBMIT


def test_decide_stop_request_while_waiting_for_the_next_attempt_ends_at_once():
    step = decide(replace(after(Reason.USER_ERROR), wanted="stop"), SPEC, GONE, NOW)
    assert (step.act, step.job.state, len(step.job.attempts)) == (None, State.CANCELLED, 1)


@pytest.mark.parametrize(("asked", "stage", "origin"), [("resume", 1, 0), ("rerun", 0, 1)])
def test_decide_asked_attempt_goes_before_the_rules(asked, stage, origin):
    again = replace(after(Reason.DONE), state=State.PENDING, wanted=asked)
    step = decide(again, SPEC, GONE, NOW)
    assert step.act is Act.SUBMIT
    assert unmarked(step.job) == Attempt(1, stage=stage, origin=origin, asked=True, action=asked)
    assert step.job.wanted == "run"


@pytest.mark.parametrize("asked", ["resume", "rerun"])
def test_decide_job_stopped_before_its_first_attempt_can_be_asked_for_again(asked):
    step = decide(replace(FRESH, wanted=asked), SPEC, None, NOW)
    assert (step.act, unmarked(step.job), step.job.wanted) == (Act.SUBMIT, Attempt(0, stage=0, origin=0), "run")


# Events between two rounds: the place moves on (or not, or by itself), a person makes a request, or the process that
# decided dies before it acts.
sights = st.sampled_from(["absent", "running", "stuck", "waits", "went on", *Reason])
rounds = st.tuples(sights, st.sampled_from(["", "", "", "stop"]), st.booleans(), st.floats(0, 100))


def observed(word: str) -> Observation:
    if word == "absent":
        return ABSENT
    if word in ("running", "stuck"):
        views = tuple(
            HostView(f"h{index}", 0, index, "running", pid=1, step=5, idle=61.0 if word == "stuck" else 0.0)
            for index in range(2)
        )
        return seen(hosts=views)
    if word == "waits":
        return seen(State.SCHEDULED, detail="for its turn")
    if word == "went on":
        return ended(Reason.PREEMPTED, active=True, next={"count": 1})
    return ended(Reason(word))


@given(st.lists(rounds, min_size=1, max_size=60))
def test_walk_any_sequence_keeps_the_record_sane(sequence):
    job, now = FRESH, NOW
    for word, request, dies, passes in sequence:
        now += passes
        if request:
            job = replace(job, wanted=request)
        sight = observed(word) if job.attempts else None
        step = decide(job, SPEC, sight, now)
        assert step == decide(job, SPEC, sight, now)

        folded = step.job.folded.count if step.job.folded else 0
        made = folded + len(step.job.attempts)
        assert [attempt.number for attempt in step.job.attempts] == list(range(folded, made))
        assert all(attempt.state.ended and attempt.reason for attempt in step.job.attempts[:-1])
        assert made - (job.folded.count if job.folded else 0) - len(job.attempts) in (0, 1)
        if step.act is Act.SUBMIT:
            assert not step.job.attempt.state.ended
        if step.act is Act.STOP:
            assert step.job.attempt.stopping or step.job.outcome
        if step.job.state.ended:
            assert sight is None or not sight.active, "an ended record implies that nothing runs"
            assert (step.act, step.job.outcome) == (None, None)
            assert step.job.ended
            assert step.job.reason is not None
            assert step.job.message
            if job.wanted == "stop" and job.outcome is None:
                assert step.job.state in (State.CANCELLED, State.COMPLETED)
            return

        if dies and step.act is not None:
            # The record was written but nothing was done: the next round finds the place unchanged.
            unchanged = ABSENT if step.act is Act.SUBMIT else sight
            assert unchanged is not None
            later = decide(step.job, SPEC, unchanged, now + 1)
            if step.act is Act.SUBMIT or unchanged.active:
                assert (later.job, later.act, later.grace) == (step.job, step.act, step.grace)
        job = step.job


@given(st.lists(rounds, max_size=30), st.sampled_from(list(Reason)))
def test_walk_stop_request_is_the_end_as_soon_as_the_place_has_nothing_of_it(sequence, reason):
    job, now = FRESH, NOW
    for word, _, _, passes in sequence:
        now += passes
        job = decide(job, SPEC, observed(word) if job.attempts else None, now).job
        if job.state.ended:
            return
    decided = job.outcome
    job = replace(job, wanted="stop")
    if job.attempts:
        step = decide(job, SPEC, seen(), now)
        assert (step.act, step.job.state.ended) == (Act.STOP, False)
        step = decide(step.job, SPEC, ended(Reason.PREEMPTED, active=True, next={}), now)
        assert (step.act, step.job.state.ended) == (Act.STOP, False), "it restarted by itself, and is stopped again"
        step = decide(step.job, SPEC, ended(reason), now)
    else:
        step = decide(job, SPEC, None, now)
    assert step.job.state.ended
    if decided is None:
        assert step.job.state is (State.COMPLETED if step.job.reason is Reason.DONE else State.CANCELLED)
    assert step.act is None


@pytest.mark.parametrize("reason", [reason for reason in Reason if reason not in (Reason.EVICTED, Reason.PORT_LOST)])
def test_decide_end_by_any_reason_gives_the_state_of_the_table(reason):
    step = decide(RUNNING, replace_rule("pass", restarts=0), ended(reason), NOW)
    assert (step.job.state, step.job.reason) == (MEANINGS[reason].state, reason)


def replace_rule(rule: str, restarts: int) -> JobSpec:
    return JobSpec.from_json(SPEC.to_json() | {"rule": rule, "max": {"restarts": restarts}})


def test_decide_attempt_that_waits_says_for_what_once_and_takes_no_step():
    waits = seen(State.SCHEDULED, detail="needs 16 chips of v4, none free")
    first = decide(LIVE, SPEC, waits, NOW)
    assert (first.act, first.job.state) == (None, State.SCHEDULED)
    assert first.job.message == "needs 16 chips of v4, none free"
    assert first.note == "waits: needs 16 chips of v4, none free"
    assert decide(first.job, SPEC, waits, NOW + 1) == Step(first.job)
    assert decide(first.job, SPEC, seen(), NOW + 2).job.message == ""


def test_decide_place_that_went_on_by_itself_is_stopped_when_nothing_should_follow():
    went_on = ended(Reason.PREEMPTED, active=True, next={"restarts": 1})
    gave_up = decide(RUNNING, replace_rule("pass", restarts=0), went_on, NOW)
    assert (gave_up.act, gave_up.job.state, gave_up.job.outcome.state) == (Act.STOP, State.RUNNING, State.FAILED)
    still = decide(gave_up.job, SPEC, went_on, NOW + 1)
    assert (still.act, still.job) == (Act.STOP, gave_up.job)
    over = decide(still.job, SPEC, GONE, NOW + 2)
    assert (over.act, over.job.state, over.job.reason) == (None, State.FAILED, Reason.PREEMPTED)


def test_decide_place_that_went_on_by_itself_is_followed_with_what_it_knows_of_the_next_attempt():
    step = decide(RUNNING, SPEC, ended(Reason.PREEMPTED, active=True, next={"restarts": 1}, ended=990.0), NOW)
    assert (step.act, step.job.state) == (None, State.SCHEDULED)
    assert step.job.attempts[0].ended == 990.0
    assert unmarked(step.job) == Attempt(1, stage=1, origin=0, action="reapply", learned={"restarts": 1})


def test_decide_end_is_when_it_ended_and_not_when_somebody_noticed():
    step = decide(RUNNING, SPEC, ended(Reason.DONE, ended=970.0), NOW)
    assert (step.job.ended, step.job.attempt.ended) == (970.0, 970.0)


def test_decide_what_a_place_learnt_is_in_the_record():
    step = decide(LIVE, SPEC, seen(State.SCHEDULED, learned={"uid": "a"}), NOW)
    assert step.job.attempt.learned == {"uid": "a"}
    more = decide(step.job, SPEC, seen(learned={"first": "h1"}), NOW)
    assert more.job.attempt.learned == {"uid": "a", "first": "h1"}


def test_decide_job_that_waits_for_capacity_carries_the_reason():
    step = decide(LIVE, SPEC, seen(State.SCHEDULED, reason=Reason.NO_CAPACITY, detail="no v4-16 is free"), NOW)
    assert (step.job.state, step.job.reason) == (State.SCHEDULED, Reason.NO_CAPACITY)
    assert decide(step.job, SPEC, seen(), NOW).job.reason is None


def test_decide_stop_request_while_the_place_restarts_waits_until_it_is_gone():
    """Between two rounds, the attempt that was to be stopped has ended and another one runs."""
    asked = replace(RUNNING, wanted="stop")
    restarted = ended(Reason.PREEMPTED, active=True, next={})
    first = decide(asked, SPEC, restarted, NOW)
    assert (first.act, first.job.attempt.stopping) == (Act.STOP, Reason.CANCELLED)
    second = decide(first.job, SPEC, restarted, NOW + 1)
    assert (second.act, second.job.state.ended) == (Act.STOP, False)
    over = decide(second.job, SPEC, GONE, NOW + 2)
    assert (over.job.state, over.job.reason) == (State.CANCELLED, Reason.CANCELLED)


def test_decide_outcome_waits_for_the_place_whoever_drives():
    closing = replace(RUNNING, outcome=Outcome(State.FAILED, Reason.HOST_LOST, "lost"))
    assert decide(closing, SPEC, seen(), NOW).act is Act.STOP
    assert decide(closing, SPEC, GONE, NOW).job.state is State.FAILED


def test_decide_warning_is_said_once_and_stays_with_an_attempt_that_ends_well():
    step = decide(RUNNING, SPEC, seen(warning="each trains alone"), NOW)
    assert step.note == "attempt 0: each trains alone"
    assert decide(step.job, SPEC, seen(warning="each trains alone"), NOW).note == ""
    over = decide(step.job, SPEC, ended(Reason.DONE), NOW).job
    assert (over.state, over.message) == (State.COMPLETED, "completed on all hosts; but each trains alone")


@pytest.mark.parametrize(
    ("pace", "idle", "hangs"),
    [(0.0, 60.0, True), (5.0, 60.0, True), (100.0, 299.0, False), (100.0, 300.0, True), (math.inf, 1e9, False)],
)
def test_decide_host_that_prints_rarely_hangs_only_after_longer_than_its_own_pace(pace, idle, hangs):
    hosts = tuple(HostView(name, 0, 0, "running", step=3, pace=pace, idle=idle) for name in ("h0", "h1"))
    assert (decide(RUNNING, SPEC, seen(hosts=hosts), NOW).act is Act.STOP) is hangs


UNSET = SPEC.replace(max=SPEC.max.written(SPEC.max.given - {"stall"}))
"""The same bounds, without max.stall in the job file."""


@pytest.mark.parametrize(
    ("step", "pace", "early", "spec", "hangs"),
    [
        (None, 0.0, True, SPEC, True),
        (None, 0.0, True, UNSET, False),
        (None, 0.0, False, SPEC, False),
        (1, math.inf, True, SPEC, True),
        (1, math.inf, True, UNSET, False),
        (1, math.inf, False, SPEC, False),
        (1, 0.0, False, UNSET, True),
    ],
)
def test_decide_hang_before_the_second_step_needs_max_stall_in_the_job_file_and_steps_that_can_be_read(
    step, pace, early, spec, hangs
):
    host = HostView("h0", 0, 0, "running", step=step, pace=pace, early=early, idle=60.0)
    assert (decide(RUNNING, spec, seen(hosts=(host,)), NOW).act is Act.STOP) is hangs
    moves = HostView("h1", 0, 1, "running", step=step, pace=pace, early=early, idle=59.0)
    assert decide(RUNNING, spec, seen(hosts=(host, moves)), NOW).act is None


HOSTS = st.builds(
    HostView,
    name=st.sampled_from(["h0", "h1", "h2"]),
    slice=st.just(0),
    index=st.just(0),
    state=st.sampled_from(["running", "stopped", "waiting"]),
    step=st.none() | st.integers(0, 9),
    pace=st.sampled_from([0.0, 5.0, 100.0, math.inf]),
    early=st.booleans(),
    idle=st.floats(0, 1000),
)


@given(hosts=st.lists(HOSTS, max_size=3).map(tuple), spec=st.sampled_from([SPEC, UNSET]))
def test_decide_host_is_taken_for_hung_only_by_steps_that_can_be_read_and_after_max_stall(hosts, spec):
    if decide(RUNNING, spec, seen(hosts=hosts), NOW).act is Act.STOP:
        readable = [one for one in hosts if one.step is not None or (one.early and spec is SPEC)]
        assert readable
        assert all(one.idle >= spec.max.stall for one in readable)
        assert spec is SPEC or all(one.idle >= 3 * one.pace for one in readable)
