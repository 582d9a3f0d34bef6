"""Actions after an attempt ends: the design's table row by row, and invariants of every history."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from tpukit.jobs import rules
from tpukit.jobs.history import UNSEEN_SECONDS
from tpukit.jobs.reasons import MEANINGS, Budget, Lost, Reason, State
from tpukit.jobs.records import Attempt
from tpukit.jobs.rules import ATTEMPTS_WITHOUT_PROGRESS, BACKOFF_MOST, CAPACITY_BACKOFF_MOST, Action, Verdict

TABLE = {
    # rule: (hardware gone, lost peers)
    "pass": ("nothing", "nothing"),
    "resume": ("nothing", "resume"),
    "rerun": ("reapply", "rerun"),
    "reapply": ("reapply", "reapply"),
    "pre": ("reapply", "resume"),
}
GONE = (Reason.PREEMPTED, Reason.MAINTENANCE, Reason.HOST_LOST, Reason.NO_CAPACITY)
APART = (Reason.PEER_LOST, Reason.PROCESS_LOST, Reason.HANG)
HARDWARE = (*GONE, *APART)
LOST = tuple(reason for reason in HARDWARE if reason is not Reason.NO_CAPACITY)  # programs that had started
USER = (Reason.USER_ERROR, Reason.OUT_OF_MEMORY, Reason.DISK_FULL, Reason.PORT_IN_USE)
FINAL = {
    Reason.DONE: State.COMPLETED,
    Reason.CANCELLED: State.CANCELLED,
    Reason.TIMEOUT: State.FAILED,
    Reason.BAD_COMMAND: State.FAILED,
    Reason.CHIPS_DENIED: State.FAILED,
    Reason.BAD_IMAGE: State.FAILED,
    Reason.CANNOT_START: State.FAILED,
    Reason.NO_QUOTA: State.FAILED,
}

rule_names = st.sampled_from(sorted(TABLE))
acting_rules = st.sampled_from(["rerun", "reapply", "pre"])
reasons = st.sampled_from(list(Reason))
ends = st.tuples(reasons, st.integers(0, 3))  # the end of an attempt, and the steps that it saved beyond those it found


def end(attempt: Attempt, reason: Reason, newly_saved: int = 0, at: float = 0.0) -> Attempt:
    saved = attempt.saved + newly_saved
    state = State.COMPLETED if reason is Reason.DONE else State.FAILED
    return replace(attempt, reason=reason, state=state, saved=saved, ended=at or 10.0 * (attempt.number + 1), host="h")


def history(*reasons: Reason) -> tuple[Attempt, ...]:
    """Return attempts with these ends, each a resume of the previous one."""
    attempts: tuple[Attempt, ...] = ()
    for reason in reasons:
        attempts = (*attempts, end(rules.following(attempts, Action.RESUME), reason))
    return attempts


def play(outcomes: Iterable[tuple[Reason, int]], rule: str, restarts: int) -> tuple[list[Attempt], list[Verdict]]:
    """Run a job whose attempts have these outcomes until no attempt follows."""
    attempts: list[Attempt] = [rules.following((), Action.RERUN)]
    verdicts = []
    for reason, newly_saved in outcomes:
        attempts[-1] = end(attempts[-1], reason, newly_saved)
        verdicts.append(rules.decide(attempts, rule, restarts))
        if verdicts[-1].action is Action.NOTHING:
            break
        attempts.append(rules.following(attempts, verdicts[-1].action))
    return attempts, verdicts


def test_reasons_each_one_has_a_row_here():
    assert {*HARDWARE, *USER, *FINAL, Reason.EVICTED, Reason.PORT_LOST} == set(Reason) == set(MEANINGS)


@pytest.mark.parametrize("rule", TABLE)
def test_decide_evicted_resumes_under_every_rule_because_the_queue_brings_it_back(rule):
    verdict = rules.decide(history(Reason.EVICTED), rule, 0)
    assert (verdict.action, verdict.state, verdict.reason) == (Action.RESUME, State.PENDING, Reason.EVICTED)


@given(st.lists(st.sampled_from(HARDWARE), max_size=ATTEMPTS_WITHOUT_PROGRESS - 1), st.integers(0, 30), acting_rules)
def test_decide_evictions_however_many_do_not_make_a_job_be_given_up(lost, evictions, rule):
    attempts = history(*lost, *[Reason.EVICTED] * evictions, Reason.PREEMPTED)
    assert rules.decide(attempts, rule, 0).action is not (
        Action.NOTHING if len(lost) + 1 < ATTEMPTS_WITHOUT_PROGRESS else None
    )


@given(st.lists(st.sampled_from(LOST), max_size=ATTEMPTS_WITHOUT_PROGRESS - 2), st.integers(1, 60), acting_rules)
def test_decide_requests_that_google_cannot_serve_however_many_do_not_make_a_job_be_given_up(lost, refused, rule):
    attempts = history(*lost, *[Reason.NO_CAPACITY] * refused)
    verdict = rules.decide(attempts, rule, 0)
    assert verdict.action is not Action.NOTHING
    least = min(2.0 ** (refused + 2), CAPACITY_BACKOFF_MOST)
    assert least <= verdict.not_before - attempts[-1].ended <= CAPACITY_BACKOFF_MOST


@given(rule_names, st.integers(0, 5), st.integers(1, 2 * ATTEMPTS_WITHOUT_PROGRESS))
def test_decide_port_of_ours_that_was_lost_is_tried_again_under_every_rule_but_not_for_ever(rule, restarts, times):
    verdict = rules.decide(history(*[Reason.PORT_LOST] * times), rule, restarts)
    if times < ATTEMPTS_WITHOUT_PROGRESS:
        assert (verdict.action, verdict.state) == (Action.RESUME, State.PENDING)
        assert "another port" in verdict.message
    else:
        assert (verdict.action, verdict.state) == (Action.NOTHING, State.FAILED)


@given(st.lists(ends, min_size=1, max_size=60), rule_names, st.integers(0, 5_000))
def test_decide_any_history_has_an_answer_that_can_be_shown_and_waited_for(outcomes, rule, restarts):
    attempts, verdicts = play(outcomes, rule, restarts)
    for attempt, verdict in zip(attempts, verdicts, strict=False):
        assert verdict.action in Action
        assert verdict.reason is attempt.reason
        assert verdict.message
        assert verdict.state.ended == (verdict.action is Action.NOTHING)
        assert math.isfinite(verdict.not_before)


@pytest.mark.parametrize("restarts", [1_000, 2_000])
def test_decide_thousands_of_restarts_wait_no_longer_than_the_most(restarts):
    attempts = history(*[Reason.USER_ERROR] * restarts)
    verdict = rules.decide(attempts, "pass", restarts)
    assert verdict.not_before - attempts[-1].ended == BACKOFF_MOST


@given(st.sampled_from([*USER, *HARDWARE, Reason.PORT_LOST]), acting_rules, st.integers(1, 40))
def test_decide_backoff_never_shrinks_while_the_trouble_lasts_and_is_bounded(reason, rule, count):
    waits = []
    for length in range(1, count + 1):
        attempts = history(*[reason] * length)
        verdict = rules.decide(attempts, rule, 100)
        if verdict.action is Action.NOTHING:
            break
        waits.append(verdict.not_before - attempts[-1].ended)
    assert waits == sorted(waits)
    assert all(0.0 <= wait <= CAPACITY_BACKOFF_MOST for wait in waits)


@given(st.lists(ends, min_size=1, max_size=40), rule_names, st.integers(0, 5))
def test_decide_message_speaks_of_restarts_only_where_the_user_is_charged(outcomes, rule, restarts):
    _, verdicts = play(outcomes, rule, restarts)
    for verdict in verdicts:
        charged = MEANINGS[verdict.reason].budget is Budget.USER
        assert charged or not re.search(r"restart \d", verdict.message)


@pytest.mark.parametrize("rule", TABLE)
@pytest.mark.parametrize("reason", HARDWARE)
def test_decide_hardware_follows_the_table(rule, reason):
    verdict = rules.decide(history(reason), rule, 0)
    assert verdict.action == TABLE[rule][reason in APART]
    assert verdict.reason is reason
    assert verdict.state is (State.FAILED if verdict.action is Action.NOTHING else State.PENDING)
    assert f"rule {rule}" in verdict.message


def test_table_has_no_other_rule():
    table = {rule: (row[Lost.HOST], row[Lost.PEER]) for rule, row in rules.RULES.items()}
    assert table == TABLE


@pytest.mark.parametrize(("reason", "state"), FINAL.items())
@pytest.mark.parametrize("rule", TABLE)
def test_decide_final_reason_nothing_follows(rule, reason, state):
    verdict = rules.decide(history(reason), rule, 100)
    assert (verdict.action, verdict.state, verdict.reason) == (Action.NOTHING, state, reason)


@pytest.mark.parametrize("reason", USER)
@pytest.mark.parametrize("rule", TABLE)
def test_decide_user_error_is_resumed_while_the_budget_lasts(rule, reason):
    first = rules.decide(history(reason), rule, 2)
    second = rules.decide(history(reason, reason), rule, 2)
    third = rules.decide(history(reason, reason, reason), rule, 2)
    assert [first.action, second.action, third.action] == [Action.RESUME, Action.RESUME, Action.NOTHING]
    assert "restart 1 of 2" in first.message
    assert "restart 2 of 2" in second.message
    assert "2 of 2 restarts used" in third.message
    assert third.state is State.FAILED


def test_decide_message_names_first_host_and_what_it_said():
    (attempt,) = history(Reason.USER_ERROR)
    verdict = rules.decide([replace(attempt, host="train-0-1", detail="exit code 3")], "pass", 0)
    assert verdict.message == "the program on train-0-1 failed: exit code 3"


@given(st.lists(ends, min_size=1, max_size=60), rule_names, st.integers(0, 5))
def test_decide_any_history_never_restarts_more_often_than_the_user_allows(outcomes, rule, restarts):
    _, verdicts = play(outcomes, rule, restarts)
    paid = [v for v in verdicts if v.action is not Action.NOTHING and MEANINGS[v.reason].budget is Budget.USER]
    assert len(paid) <= restarts


@given(
    st.lists(st.sampled_from(USER), min_size=1, max_size=6),
    st.lists(st.tuples(st.integers(0, 5), st.sampled_from([*HARDWARE, Reason.EVICTED, Reason.PORT_LOST])), max_size=20),
    rule_names,
    st.integers(0, 6),
)
def test_decide_hardware_ends_never_spend_the_users_budget(user, lost, rule, restarts):
    mixed = list(user[:-1])
    for where, reason in lost:
        mixed.insert(where, reason)
    alone = rules.decide(history(*user), rule, restarts)
    among = rules.decide(history(*mixed, user[-1]), rule, restarts)
    assert (among.action, among.state, among.message) == (alone.action, alone.state, alone.message)


@given(st.lists(ends, max_size=20), st.lists(st.sampled_from(LOST), min_size=1, max_size=25), acting_rules)
def test_decide_hardware_ends_without_progress_are_given_up_after_ten(before, lost, rule):
    attempts, verdicts = play(before, rule, 100)
    if verdicts and verdicts[-1].action is Action.NOTHING:
        attempts.append(rules.following(attempts, Action.RESUME, asked=True))
    attempts[-1] = end(attempts[-1], Reason.USER_ERROR)
    for count, reason in enumerate(lost, start=1):
        attempts.append(end(rules.following(attempts, Action.RESUME), reason))
        given_up = rules.decide(attempts, rule, 100).action is Action.NOTHING
        assert given_up == (count >= ATTEMPTS_WITHOUT_PROGRESS)


@given(
    st.lists(st.sampled_from(LOST), min_size=ATTEMPTS_WITHOUT_PROGRESS, max_size=ATTEMPTS_WITHOUT_PROGRESS),
    st.integers(-1, 500),
    acting_rules,
)
def test_decide_asked_resume_of_a_saved_job_gets_ten_tries_and_no_more(lost, saved, rule):
    attempts = [end(rules.following((), Action.RERUN), Reason.CANCELLED, newly_saved=saved + 1)]
    attempts.append(end(rules.following(attempts, Action.RESUME, asked=True), lost[0]))
    for reason in lost[1:]:
        assert rules.decide(attempts, rule, 0).action is not Action.NOTHING
        attempts.append(end(rules.following(attempts, Action.RESUME), reason))
    assert rules.decide(attempts, rule, 0).action is Action.NOTHING


@given(st.lists(st.sampled_from(LOST), min_size=1, max_size=80), acting_rules)
def test_decide_progress_each_time_goes_on_for_ever(lost, rule):
    _, verdicts = play([(reason, 1) for reason in lost], rule, 0)
    assert all(verdict.action is not Action.NOTHING for verdict in verdicts)
    assert all(
        verdict.not_before == 10.0 * (index + 1) for index, verdict in enumerate(verdicts)
    )  # nothing to wait for


@given(st.lists(ends, min_size=1, max_size=60), rule_names, st.integers(0, 100))
def test_decide_waiting_time_begins_at_the_end_and_is_bounded(outcomes, rule, restarts):
    attempts, verdicts = play(outcomes, rule, restarts)
    for attempt, verdict in zip(attempts, verdicts, strict=False):
        if verdict.action is not Action.NOTHING:
            most = CAPACITY_BACKOFF_MOST if attempt.reason is Reason.NO_CAPACITY else BACKOFF_MOST
            assert attempt.ended <= verdict.not_before <= attempt.ended + most


@pytest.mark.parametrize("reason", [Reason.USER_ERROR, Reason.HOST_LOST])
def test_decide_same_trouble_again_and_again_waits_longer_each_time(reason):
    waits = []
    for count in range(1, ATTEMPTS_WITHOUT_PROGRESS):
        attempts = history(*[reason] * count)
        waits.append(rules.decide(attempts, "pre", 100).not_before - attempts[-1].ended)
    assert waits == sorted(waits)
    assert waits[-1] > waits[0]
    assert waits[-1] <= BACKOFF_MOST


@given(st.lists(reasons, min_size=1, max_size=15), reasons, rule_names, st.integers(0, 3), st.booleans())
def test_decide_asked_attempt_begins_budgets_anew(past, reason, rule, restarts, from_the_beginning):
    before = history(*past)
    action = Action.RERUN if from_the_beginning else Action.RESUME
    asked = end(rules.following(before, action, asked=True), reason)
    fresh = end(rules.following((), Action.RERUN), reason, at=asked.ended)
    assert rules.decide([*before, asked], rule, restarts) == rules.decide([fresh], rule, restarts)


@given(st.lists(ends, min_size=1, max_size=40), rule_names, st.integers(0, 20))
def test_following_any_history_counts_stages_since_the_origin(outcomes, rule, restarts):
    attempts, verdicts = play(outcomes, rule, restarts)
    assert [attempt.number for attempt in attempts] == list(range(len(attempts)))
    for before, verdict, after in zip(attempts, verdicts, attempts[1:], strict=False):
        if verdict.action is Action.RERUN:
            assert (after.stage, after.origin) == (0, after.number)
        else:
            assert (after.stage, after.origin) == (before.stage + 1, before.origin)
            assert after.saved >= before.saved


def test_following_nothing_is_the_first_attempt():
    assert rules.following((), Action.RESUME, asked=True) == Attempt(0, stage=0, origin=0, asked=True)


@given(st.lists(ends, max_size=10), rule_names)
def test_following_rerun_finds_no_checkpoint_of_earlier_attempts(outcomes, rule):
    attempts: Sequence[Attempt] = play(outcomes, rule, 5)[0]
    again = rules.following(attempts, Action.RERUN, asked=True)
    assert again == Attempt(len(attempts), stage=0, origin=len(attempts), asked=True)


def lost(ran: float, step: int, saved: int = -1) -> Verdict:
    """Return the verdict on the last of many attempts that were preempted after `ran` seconds at the same step."""
    attempts: tuple[Attempt, ...] = ()
    for number in range(ATTEMPTS_WITHOUT_PROGRESS + 1):
        at = 10_000.0 * (number + 1)
        attempt = replace(rules.following(attempts, Action.RESUME), started=at - ran, step=step, saved=saved)
        attempts = (*attempts, end(attempt, Reason.PREEMPTED, at=at))
    return rules.decide(attempts, "pre", 0)


def test_decide_program_that_shows_nothing_and_runs_for_long_is_not_given_up():
    assert lost(ran=UNSEEN_SECONDS, step=-1).action is Action.REAPPLY


def test_decide_program_that_shows_nothing_and_dies_soon_is_given_up_with_a_hint():
    verdict = lost(ran=5.0, step=-1)
    assert verdict.action is Action.NOTHING
    assert "progress:" in verdict.message


def test_decide_program_that_shows_steps_and_never_comes_further_is_given_up():
    assert lost(ran=5000.0, step=40).action is Action.NOTHING


def test_decide_program_that_comes_further_each_time_goes_on_though_no_save_is_seen():
    attempts: tuple[Attempt, ...] = ()
    for number in range(3 * ATTEMPTS_WITHOUT_PROGRESS):
        attempt = replace(rules.following(attempts, Action.RESUME), step=10 * number)
        attempts = (*attempts, end(attempt, Reason.PREEMPTED))
    assert rules.decide(attempts, "pre", 0).action is Action.REAPPLY
