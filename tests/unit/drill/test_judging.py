"""Verdicts and advice: the effect of a loss is judged correctly, and correct programs are never blamed."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.drill_world import Program
from tpukit.drill import advice, findings, judging, offsets
from tpukit.drill.advice import Cause
from tpukit.drill.comparing import Noise
from tpukit.drill.judging import judge
from tpukit.drill.losses import Damage, Loss, What, When
from tpukit.drill.saves import Save
from tpukit.drill.trace import Report
from tpukit.drill.verdicts import Ended, Word, worst

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
    """Without digests, a wrong shift must never be named; few points may be too few."""
    program = Program(seed, digests=False, mistake="data")
    verdict = judge(program.unbroken(), program.broken(lost))
    assert verdict.word in (Word.REPEATS, Word.DIVERGES)
    if verdict.word is Word.REPEATS:
        assert verdict.evidence.shift.by == lost // 10 * 10


def test_judge_data_position_lost_without_digests_is_named_in_most_runs_and_digests_are_asked_for_in_the_others():
    named = 0
    for seed in range(40):
        program = Program(seed, digests=False, mistake="data")
        verdict = judge(program.unbroken(), program.broken(25))
        named += verdict.word is Word.REPEATS
        assert verdict.word is Word.REPEATS or "report batch=host.digest(...)" in verdict.text
    assert named >= 24


def test_judge_off_by_one_is_named_by_digests():
    program = Program(mistake="off by one")
    verdict = judge(program.unbroken(), program.broken(34))
    assert (verdict.word, advice.causes(verdict)) == (Word.REPEATS, (Cause.OFF_BY_ONE,))


@pytest.mark.parametrize(
    ("mistake", "word", "cause"),
    [
        ("optimizer", Word.DIVERGES, Cause.OPTIMIZER),
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
    assert 0.9e-6 < noise.most < 1.1e-6
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
    killed = program.broken(29, loss)  # a step takes a second
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


def test_judge_host_that_was_done_while_another_resumes_misses_a_barrier():
    program = Program(hosts=2)
    broken = program.broken(55)
    one_done = tuple(replace(one, loss=one.loss + 0.01) for one in broken.trace if one.attempt and one.host == 1)
    lost = tuple(one for one in broken.trace if one.attempt == 0)
    verdict = judge(program.unbroken(), replace(broken, trace=(*lost, *one_done)))
    assert (verdict.word, advice.causes(verdict)) == (Word.DIVERGES, (Cause.BARRIER,))
    assert "host 0 made no further step" in verdict.text


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
    shaky = replace(broken, trace=marked(broken.trace, "x"))
    noise = judging.noise(marked(unbroken, ""), [shaky])
    assert judge(marked(unbroken, ""), shaky, noise).word is Word.EXACT
    assert judge(marked(unbroken, ""), replace(broken, trace=tuple(later))).word is Word.DIVERGES


def test_judge_loss_that_never_happened_is_said():
    program = Program()
    verdict = judge(program.unbroken(), replace(program.broken(25), struck=()))
    assert verdict.word is Word.NOT_STRUCK


def test_worst_of_all_is_the_verdict_on_the_program():
    program, wrong = Program(), Program(mistake="data")
    good, bad = judge(program.unbroken(), program.broken(25)), judge(wrong.unbroken(), wrong.broken(25))
    assert worst([good.word, bad.word, good.word]) is Word.REPEATS
    assert worst([]) is None


@settings(max_examples=25)
@given(st.data())
def test_judge_whatever_is_reported_raises_nothing(data):
    """A trace holds what programs print: any steps in any order from any host, with losses that may not be numbers."""
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
    assert worst([late.word, judge(program.unbroken(), program.broken(25)).word]) is Word.EXACT
    assert worst([late.word]) is Word.NOT_STRUCK


def test_judge_run_that_lost_the_rest_of_its_steps_and_ended_well_does_not_pass_for_struck_too_late():
    program = Program(hosts=2)
    broken = program.broken(59)
    silent = replace(broken, trace=tuple(one for one in broken.trace if one.attempt == 0))
    assert judge(program.unbroken(), silent).word is Word.NOT_BACK


def changed(broken, change):
    """Return the run with every report after the loss changed."""
    return replace(broken, trace=tuple(change(one) if one.attempt else one for one in broken.trace))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -math.inf, None])
def test_judge_loss_that_is_no_number_or_missing_after_a_resume_differs(loss):
    program = Program(digests=False)
    spoilt = changed(program.broken(25), lambda one: replace(one, loss=loss))
    verdict = judge(program.unbroken(), spoilt)
    assert verdict.word is Word.DIVERGES, verdict.text
    assert advice.causes(verdict) == ()


def test_judge_one_nan_among_right_losses_differs():
    program = Program(digests=False)
    spoilt = changed(program.broken(25), lambda one: replace(one, loss=math.nan) if one.step == 40 else one)
    assert judge(program.unbroken(), spoilt).evidence.first_different == 40


def test_judge_nan_that_was_there_unbroken_is_no_difference_and_no_evidence():
    program = Program(digests=False)
    unbroken = tuple(replace(one, loss=math.nan) for one in program.unbroken())
    broken = program.broken(25)
    broken = replace(broken, trace=tuple(replace(one, loss=math.nan) for one in broken.trace))
    assert judge(unbroken, broken).word is Word.CANNOT_TELL


def test_judge_steps_without_any_value_are_never_exact():
    program = Program(digests=False)
    unbroken = tuple(replace(one, loss=None) for one in program.unbroken())
    broken = program.broken(25)
    broken = replace(broken, trace=tuple(replace(one, loss=None) for one in broken.trace))
    verdict = judge(unbroken, broken)
    assert verdict.word is Word.CANNOT_TELL
    assert "40 steps were compared, and no value" in verdict.text


def test_judge_exact_verdict_says_how_much_was_compared():
    program = Program(digests=True)
    assert "80 values of 40 steps compared" in judge(program.unbroken(), program.broken(25)).text


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.02, 0.5))
def test_judge_program_as_noisy_as_its_batches_gets_cannot_tell_and_never_exact(seed, size):
    """Such noise would hide parameters that were not restored."""
    program = Program(seed, digests=False)
    chance = random.Random(seed)

    def shaken(trace):
        return tuple(replace(one, loss=one.loss * (1 + chance.gauss(0, size))) for one in trace)

    unbroken, broken = program.unbroken(), program.broken(25)
    broken = replace(broken, trace=shaken(broken.trace))
    noise = judging.noise(unbroken, [broken], [shaken(unbroken), shaken(unbroken)])
    assert judge(unbroken, broken, noise).word is Word.CANNOT_TELL


def test_judge_noisy_losses_with_equal_digests_of_parameters_are_exact():
    program = Program()
    chance = random.Random(1)

    def shaken(trace):
        return tuple(
            replace(one, loss=one.loss * (1 + chance.gauss(0, 0.2)), params=f"params-{one.step}") for one in trace
        )

    unbroken, broken = shaken(program.unbroken()), program.broken(25)
    broken = replace(broken, trace=shaken(broken.trace))
    noise = judging.noise(unbroken, [broken], [shaken(program.unbroken())])
    assert judge(unbroken, broken, noise).word is Word.EXACT


def test_judge_noise_still_lets_a_run_that_starts_over_be_named():
    program = Program(digests=False, mistake="starts over")
    unbroken, broken = program.unbroken(), program.broken(25)
    assert judge(unbroken, broken, Noise(0.5, 0.1)).word is Word.STARTS_OVER


def test_by_loss_unrelated_losses_are_hardly_ever_a_shift():
    """Fewer than 1 in 1,000; `make bench ONLY=drill` measures it over more."""
    named = 0
    for seed in range(300):
        chance = random.Random(seed)
        unbroken = {step: 3 * math.exp(-step / 20) + chance.gauss(1, 0.2) for step in range(1, 61)}
        resumed = {step: 3 * math.exp(-step / 20) + chance.gauss(1, 0.2) for step in range(61 - 14 - seed % 8, 61)}
        named += offsets.by_loss(unbroken, resumed) is not None
    assert named == 0


def test_causes_random_numbers_with_right_batches_scatter_around_the_right_losses():
    named = 0
    for seed in range(20):
        program = Program(seed, mistake="rng")
        causes = advice.causes(judge(program.unbroken(), program.broken(34)))
        assert causes in ((), (Cause.RNG,))
        named += bool(causes)
    assert named >= 12


@pytest.mark.parametrize("lost", [12, 25, 34])
def test_causes_weights_of_the_step_before_are_no_random_numbers_and_not_those_of_an_untrained_model(lost):
    for seed in range(20):
        lag, untrained = Program(seed, mistake="lag"), Program(seed, mistake="parameters")
        verdict = judge(lag.unbroken(), lag.broken(lost))
        assert (verdict.word, advice.causes(verdict)) == (Word.DIVERGES, ()), seed
        causes = advice.causes(judge(untrained.unbroken(), untrained.broken(lost)))
        assert causes in ((), (Cause.NOT_RESTORED,)), seed


def test_judge_run_that_counts_its_steps_from_the_resume_trains_too_long():
    program = Program()
    broken = program.broken(25)
    more = tuple(replace(one, step=step, batch="more") for one in broken.trace[-1:] for step in range(61, 81))
    verdict = judge(program.unbroken(), replace(broken, trace=(*broken.trace, *more)))
    assert (verdict.word, advice.causes(verdict)) == (Word.DIVERGES, ())
    assert "it trained to step 80; the unbroken run ended at 60" in verdict.text


@pytest.mark.parametrize(
    ("embed", "by", "cause"),
    [("e", 0.1, Cause.PARTLY_RESTORED), ("other", 0.1, Cause.NOT_RESTORED), ("other", 1e-3, Cause.PRECISION)],
)
def test_causes_parameters_that_were_not_restored_are_named(embed, by, cause):
    program = Program()
    names = {"embed": "e", "head": "h"}
    unbroken = tuple(replace(one, params="p", named=tuple(names.items())) for one in program.unbroken())
    broken = changed(program.broken(25), lambda one: replace(one, loss=one.loss * (1 + by)))
    restored = Report(1, 0, 20, params="q", named=(("embed", embed), ("head", "other")))
    broken = replace(broken, trace=(*broken.trace[:25], restored, *broken.trace[25:]))
    verdict = judge(unbroken, broken)
    assert verdict.resumed_at == 21
    assert f"not restored: {'embed, ' if embed == 'other' else ''}head" in verdict.text
    assert advice.causes(verdict) == (cause,)


def test_causes_equal_digests_in_a_plain_loss_exclude_the_data_everywhere():
    program, other = Program(mistake="optimizer"), Program(mistake="data")
    plain = judge(program.unbroken(), program.broken(34))
    special = Loss("save-half", What.KILL, ((0, 0),), When.SAVE_HALF, 20)
    shifted = judge(other.unbroken(), other.broken(34, special))
    assert advice.causes(shifted) == (Cause.DATA_POSITION,)
    assert advice.of_all([plain, shifted]) == [(Cause.OPTIMIZER,), ()]


def test_causes_fall_back_to_an_older_checkpoint_is_not_a_spoilt_one_that_was_read():
    program = Program(mistake="optimizer")
    loss = Loss("corrupt-newest", What.KILL, ((0, 0),), When.SAVED, 20, damage=Damage.CORRUPT)
    older = Program(mistake="older").broken(34, loss)
    optimizer = program.broken(24)  # resumes at 21, like a run that falls back from step 30
    later = tuple(one for one in optimizer.trace if one.attempt)
    broken = replace(older, trace=(*(one for one in older.trace if not one.attempt), *later))
    verdict = judge(program.unbroken(), broken)
    assert verdict.word is Word.DIVERGES
    assert advice.causes(verdict) == (Cause.OPTIMIZER,)


def test_unbroken_findings_fresh_run_past_its_first_step_and_last_save_unfinished():
    program = Program()
    late = tuple(one for one in program.unbroken() if one.step > 30)
    assert [one.word for one in findings.of_unbroken(late, ())] == [Word.CANNOT_TELL]
    torn = Save(60, 60.0, 60.1, paths=("60.tmp/state",))
    assert [one.word for one in findings.of_unbroken(program.unbroken(), (torn,))] == [Word.LOSES_MORE]
    assert findings.of_unbroken(program.unbroken(), (replace(torn, done=True),)) == ()


def test_unbroken_findings_steps_printed_every_ten_are_a_whole_run():
    program = Program()
    rare = tuple(one for one in program.unbroken() if one.step % 10 == 0)
    assert findings.of_unbroken(rare, ()) == ()


def test_causes_position_saved_ahead_of_training_is_told_from_one_that_was_not_saved():
    program = Program()
    broken = program.broken(25)
    ahead = changed(broken, lambda one: replace(one, batch=f"batch-{one.step + 2}", loss=one.loss + 0.1))
    verdict = judge(program.unbroken(), ahead)
    assert (verdict.word, advice.causes(verdict)) == (Word.SKIPS, (Cause.AHEAD,))


def test_causes_differences_as_small_as_rounding_are_no_other_random_numbers():
    program = Program()
    chance = random.Random(2)
    rounded = changed(program.broken(25), lambda one: replace(one, loss=one.loss * (1 + chance.gauss(0, 1e-4))))
    verdict = judge(program.unbroken(), rounded)
    assert (verdict.word, advice.causes(verdict)) == (Word.DIVERGES, ())
