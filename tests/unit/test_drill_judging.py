"""Verdicts and advice: what a loss did is said rightly whatever the program, and a right one is never blamed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit.drill import advice, judging
from tpukit.drill.advice import Cause
from tpukit.drill.judging import Ended, Word, judge
from tpukit.drill.losses import Damage, Loss, What, When
from unit.drill_world import Program

LOST = st.integers(1, 59)


@settings(max_examples=30)
@given(st.integers(0, 10**6), LOST, st.booleans(), st.integers(1, 3))
def test_judge_right_program_is_exact_wherever_it_is_lost(seed, lost, digests, hosts):
    program = Program(seed, hosts, digests)
    verdict = judge(program.unbroken(), program.broken(lost))
    assert verdict.word is Word.EXACT, verdict.text
    assert advice.causes(verdict) == ()
    assert verdict.steps_lost == lost - lost // 10 * 10
    assert verdict.resumed_at == lost // 10 * 10 + 1


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(10, 45))
def test_judge_data_position_lost_names_the_batches_by_digest(seed, lost):
    program = Program(seed, mistake="data")
    verdict = judge(program.unbroken(), program.broken(lost))
    assert verdict.word is Word.REPEATS
    assert verdict.evidence.shift.by == lost // 10 * 10
    assert advice.causes(verdict) == (Cause.DATA_POSITION,)


@settings(max_examples=15)
@given(st.integers(0, 10**6), st.integers(10, 35))
def test_judge_data_position_lost_is_known_by_the_shape_of_the_loss_or_not_at_all(seed, lost):
    """Without digests a wrong shift may never be named. Few points may be too few."""
    program = Program(seed, digests=False, mistake="data")
    verdict = judge(program.unbroken(), program.broken(lost))
    assert verdict.word in (Word.REPEATS, Word.DIVERGES)
    if verdict.word is Word.REPEATS:
        assert verdict.evidence.shift.by == lost // 10 * 10


def test_judge_data_position_lost_without_digests_is_named_in_nearly_all_runs():
    named = 0
    for seed in range(40):
        program = Program(seed, digests=False, mistake="data")
        named += judge(program.unbroken(), program.broken(25)).word is Word.REPEATS
    assert named >= 38


@pytest.mark.parametrize(
    ("mistake", "word", "cause"),
    [
        ("optimizer", Word.DIVERGES, Cause.OPTIMIZER),
        ("rng", Word.DIVERGES, Cause.RNG),
        ("off by one", Word.REPEATS, Cause.OFF_BY_ONE),
        ("starts over", Word.STARTS_OVER, Cause.NOT_LOOKED_FOR),
        ("older", Word.LOSES_MORE, Cause.NOT_NEWEST),
    ],
)
@pytest.mark.parametrize("digests", [True, False])
def test_judge_mistake_gets_its_word_and_cause(mistake, word, cause, digests):
    for seed in range(10):
        program = Program(seed, digests=digests, mistake=mistake)
        verdict = judge(program.unbroken(), program.broken(34))
        assert verdict.word is word, (seed, verdict.text)
        assert advice.causes(verdict)[0] is cause


def test_judge_noise_before_the_loss_is_allowed_after_it_and_no_more():
    program = Program()
    unbroken, broken = program.unbroken(), program.broken(25)

    def shaken(by_before, by_after):
        moved = [
            replace(one, loss=one.loss * (1 + (by_before if one.attempt == 0 else by_after))) for one in broken.trace
        ]
        return replace(broken, trace=tuple(moved))

    noisy = shaken(1e-6, 2e-6)
    noise = judging.noise(unbroken, [noisy])
    assert 0.9e-6 < noise < 1.1e-6
    assert judge(unbroken, noisy, noise).word is Word.EXACT
    assert "noise" in judge(unbroken, noisy, noise).text
    assert judge(unbroken, shaken(1e-6, 1e-3), noise).word is Word.DIVERGES


def test_judge_run_that_reports_nothing_after_the_loss_does_not_come_back():
    program = Program()
    broken = program.broken(25, completed=False)
    silent = replace(broken, trace=tuple(one for one in broken.trace if one.attempt == 0), given_up="no step for 36 s")
    verdict = judge(program.unbroken(), silent)
    assert verdict.word is Word.NOT_BACK
    assert "no step for 36 s" in verdict.text


@pytest.mark.parametrize(("when", "damage"), [(When.SAVE_HALF, Damage.NONE), (When.SAVED, Damage.CORRUPT)])
def test_judge_program_that_fails_on_its_checkpoint_left_one_that_cannot_be_read(when, damage):
    program = Program()
    loss = Loss("save-half", What.KILL, ((0, 0),), when, 20, damage=damage)
    broken = program.broken(25, loss)
    trace = tuple(one for one in broken.trace if one.attempt == 0)
    failed = replace(broken, trace=trace, ended=Ended(False, "JSONDecodeError", (False, True, True)))
    verdict = judge(program.unbroken(), failed)
    assert verdict.word is Word.UNREADABLE
    expected = Cause.NOT_ATOMIC if damage is Damage.NONE else Cause.NO_FALLBACK
    assert advice.causes(verdict)[0] is expected


def test_judge_attempt_that_was_ended_for_its_silence_did_not_fail_on_its_checkpoint():
    program = Program()
    loss = Loss("truncated-newest", What.KILL, ((0, 0),), When.SAVED, 20, damage=Damage.TRUNCATE)
    broken = program.broken(25, loss)
    trace = tuple(one for one in broken.trace if one.attempt == 0)
    ended = Ended(False, "stopped", (False, True))
    silent = replace(broken, trace=trace, ended=ended, given_up="no step was reported for 36 s")
    assert judge(program.unbroken(), silent).word is Word.NOT_BACK


def test_judge_run_that_ends_early_with_success_does_not_come_back():
    program = Program()
    broken = program.broken(25)
    short = replace(broken, trace=tuple(one for one in broken.trace if one.attempt == 0 or one.step <= 40))
    verdict = judge(program.unbroken(), short)
    assert verdict.word is Word.NOT_BACK
    assert "ended well at step 40" in verdict.text


def test_judge_preempted_program_that_had_time_to_save_and_did_not_loses_more():
    program = Program()
    loss = Loss("term", What.TERM, ((0, 0),), step=25)
    verdict = judge(program.unbroken(), program.broken(25, loss), saving_seconds=0.1, grace=30.0)
    assert verdict.word is Word.LOSES_MORE
    assert advice.causes(verdict) == (Cause.NO_SAVE_ON_TERM,)
    assert judge(program.unbroken(), program.broken(25, loss), saving_seconds=40.0, grace=30.0).word is Word.EXACT


def test_judge_program_that_trains_on_until_the_grace_is_over_saves_too_rarely():
    program = Program()
    loss = Loss("term", What.TERM, ((0, 0),), step=22)
    killed = program.broken(29, loss)  # a step takes a second here
    told = replace(killed, struck=(replace(killed.struck[0], step=22, at=22.0),))
    verdict = judge(program.unbroken(), told, saving_seconds=0.1, grace=8.0)
    assert verdict.word is Word.LOSES_MORE
    assert "it trained on" in verdict.text
    assert advice.causes(verdict) == (Cause.LONG_INTERVAL,)
    stopped_early = judge(program.unbroken(), told, saving_seconds=0.1, grace=30.0)
    assert advice.causes(stopped_early) == (Cause.NO_SAVE_ON_TERM,)


def test_judge_older_checkpoint_is_named_though_the_program_was_told_to_leave():
    program = Program(mistake="older")
    loss = Loss("term", What.TERM, ((0, 0),), step=25)
    verdict = judge(program.unbroken(), program.broken(25, loss), saving_seconds=0.1)
    assert verdict.word is Word.LOSES_MORE
    assert advice.causes(verdict) == (Cause.NOT_NEWEST,)


def test_judge_steps_numbered_by_the_attempt_are_a_counter_not_data():
    program = Program(digests=False)
    broken = program.broken(25)
    counted = [replace(one, step=one.step + 1) if one.attempt else one for one in broken.trace]
    verdict = judge(program.unbroken(), replace(broken, trace=tuple(counted)))
    assert verdict.word is Word.DIVERGES
    assert advice.causes(verdict) == (Cause.STEP_COUNTER,)


def test_judge_hosts_that_resume_at_different_steps_miss_a_barrier():
    program = Program(hosts=2)
    broken = program.broken(25)
    apart = tuple(one for one in broken.trace if one.attempt == 0 or one.host == 0 or one.step > 30)
    verdict = judge(program.unbroken(), replace(broken, trace=apart))
    assert verdict.word is Word.DIVERGES
    assert advice.causes(verdict) == (Cause.BARRIER,)


def test_judge_only_other_hosts_differ_blames_what_rank_0_saved():
    program = Program(hosts=2)
    broken = program.broken(25)
    moved = [replace(one, loss=one.loss + 0.1) if one.attempt and one.host == 1 else one for one in broken.trace]
    verdict = judge(program.unbroken(), replace(broken, trace=tuple(moved)))
    assert verdict.word is Word.DIVERGES
    assert advice.causes(verdict) == (Cause.RANK_0_SAVES,)


def test_judge_parameters_that_differ_are_seen_where_losses_do_not_show_it():
    program = Program()
    unbroken, broken = program.unbroken(), program.broken(25)
    marked = tuple(replace(one, params="a") if one.step == 60 else one for one in unbroken)
    other = tuple(replace(one, params="b") if one.step == 60 else one for one in broken.trace)
    assert judge(marked, replace(broken, trace=other)).word is Word.DIVERGES
    assert judge(marked, replace(broken, trace=broken.trace)).word is Word.EXACT


def test_judge_parameters_that_differ_before_the_loss_too_say_nothing():
    program = Program()
    unbroken, broken = program.unbroken(), program.broken(25)

    def marked(trace, by):
        return tuple(replace(one, params=f"{one.step}{by}") for one in trace)

    later = [replace(one, params=f"{one.step}{'x' if one.attempt else ''}") for one in broken.trace]
    assert judge(marked(unbroken, ""), replace(broken, trace=marked(broken.trace, "x"))).word is Word.EXACT
    assert judge(marked(unbroken, ""), replace(broken, trace=tuple(later))).word is Word.DIVERGES


def test_judge_loss_that_never_happened_is_said():
    program = Program()
    verdict = judge(program.unbroken(), replace(program.broken(25), struck=()))
    assert verdict.word is Word.NOT_STRUCK


def test_worst_of_all_is_the_verdict_on_the_program():
    program, wrong = Program(), Program(mistake="data")
    good, bad = judge(program.unbroken(), program.broken(25)), judge(wrong.unbroken(), wrong.broken(25))
    assert judging.worst([good, bad, good]) is Word.REPEATS
    assert judging.worst([]) is None


@settings(max_examples=25)
@given(st.data())
def test_judge_whatever_is_reported_raises_nothing(data):
    """A trace is what programs print: any steps, in any order, of any hosts, with losses that are no numbers."""
    program = Program()
    broken = program.broken(25)
    values = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True))
    moved = [
        replace(one, step=data.draw(st.integers(0, 80)), loss=data.draw(values))
        for one in data.draw(st.lists(st.sampled_from(broken.trace), max_size=30))
    ]
    verdict = judge(program.unbroken(), replace(broken, trace=tuple(moved)))
    assert verdict.word in Word
    advice.causes(verdict)


def test_judge_loss_after_the_last_step_did_not_happen_and_spoils_no_word():
    program = Program(hosts=2)
    late = judge(program.unbroken(), program.broken(60))
    assert late.word is Word.NOT_STRUCK
    assert judging.worst([late, judge(program.unbroken(), program.broken(25))]) is Word.EXACT
    assert judging.worst([late]) is Word.NOT_STRUCK


def test_judge_run_that_lost_the_rest_of_its_steps_and_ended_well_does_not_pass_for_struck_too_late():
    program = Program(hosts=2)
    broken = program.broken(59)
    silent = replace(broken, trace=tuple(one for one in broken.trace if one.attempt == 0))
    assert judge(program.unbroken(), silent).word is Word.NOT_BACK
