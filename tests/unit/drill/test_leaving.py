"""SIGTERM: a program's reaction within its grace period is judged correctly, however often it saves."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.drill_world import Program
from tpukit.drill import advice
from tpukit.drill.advice import Cause
from tpukit.drill.judging import judge
from tpukit.drill.losses import Loss, What
from tpukit.drill.saves import Save
from tpukit.drill.verdicts import Word

TERM = Loss("term", What.TERM, ((0, 0),), step=20)


def told(program, at, until):
    """Return a run with SIGTERM at step `at` and the last report at step `until`, at one second per step."""
    broken = program.broken(until, TERM)
    return replace(broken, struck=(replace(broken.struck[0], step=at, at=float(at)),))


def alone(broken):
    """Return the run as if its first attempt had been the only one, because it exited with 0."""
    return replace(broken, trace=tuple(one for one in broken.trace if not one.attempt))


@pytest.mark.parametrize("every", [1, 2, 10])
def test_judge_program_that_trains_on_until_it_is_killed_ignores_sigterm_however_often_it_saves(every):
    program = Program(every=every)
    verdict = judge(program.unbroken(), told(program, 20, 41), saving_seconds=0.1, grace=21.0)
    assert verdict.word is Word.LOSES_MORE, verdict.text
    assert advice.causes(verdict) == (Cause.IGNORES_TERM,)


def test_judge_program_that_leaves_and_saves_nothing_loses_more_though_it_saves_often():
    program = Program(every=3)
    verdict = judge(program.unbroken(), told(program, 22, 23), saving_seconds=0.1, grace=8.0)
    assert verdict.steps_lost == 2
    assert (verdict.word, advice.causes(verdict)) == (Word.LOSES_MORE, (Cause.NO_SAVE_ON_TERM,))


def test_judge_program_that_saves_as_it_leaves_may_lose_the_steps_under_way():
    program = Program(every=3)
    broken = told(program, 22, 23)
    saved = Save(21, 22.5, 22.9, 100, True, ("checkpoints/21/state",), True)
    verdict = judge(program.unbroken(), replace(broken, saves=(*broken.saves, saved)), saving_seconds=0.1, grace=8.0)
    assert verdict.word is Word.EXACT, verdict.text


def test_judge_program_that_gets_sigterm_late_and_saves_its_last_step_is_exact():
    """A place may take more than half of a short grace to deliver SIGTERM."""
    program = Program(every=3)
    broken = told(program, 20, 27)
    saved = Save(27, 27.1, 27.4, 100, True, ("checkpoints/27/state",), True)
    verdict = judge(program.unbroken(), replace(broken, saves=(*broken.saves, saved)), saving_seconds=0.1, grace=12.0)
    assert verdict.word is Word.EXACT, verdict.text


@pytest.mark.parametrize(("done", "word"), [(False, Word.LOSES_MORE), (True, Word.EXACT)])
def test_judge_save_that_was_not_finished_at_exit_loses_more_though_only_one_step_is_lost(done, word):
    program = Program()
    broken = told(program, 30, 31)
    saved = Save(31, 31.1, 31.2, 50, done, ("checkpoints/31.tmp/state",), True)
    verdict = judge(program.unbroken(), replace(broken, saves=(*broken.saves, saved)), saving_seconds=0.1, grace=8.0)
    assert (verdict.word, verdict.steps_lost) == (word, 1), verdict.text
    assert advice.causes(verdict) == (() if done else (Cause.UNFINISHED,))
    assert done or verdict.text.startswith("1 step was lost")


def test_judge_short_program_that_trains_to_its_end_after_sigterm_ignores_it():
    program = Program()
    verdict = judge(program.unbroken(), alone(told(program, 40, 60)), saving_seconds=0.1, grace=30.0)
    assert (verdict.word, verdict.text) == (Word.LOSES_MORE, "it made 20 steps after SIGTERM and trained to its end")
    assert advice.causes(verdict) == (Cause.IGNORES_TERM,)


def test_judge_program_that_exits_0_on_sigterm_is_not_resumed():
    program = Program()
    verdict = judge(program.unbroken(), alone(told(program, 20, 21)), saving_seconds=0.1, grace=8.0)
    assert (verdict.word, advice.causes(verdict)) == (Word.NOT_BACK, (Cause.EXIT_0,))


def test_judge_save_whose_end_was_not_seen_and_that_was_restored_is_not_blamed():
    program = Program(every=30)
    broken = told(program, 29, 31)
    unseen = tuple(replace(save, done=False, began=29.5) if save.step == 30 else save for save in broken.saves)
    verdict = judge(program.unbroken(), replace(broken, saves=unseen), saving_seconds=0.1, grace=8.0)
    assert (verdict.word, verdict.steps_lost) == (Word.EXACT, 1), verdict.text


def test_judge_two_slow_steps_after_sigterm_on_a_busy_machine_are_no_training_on():
    program = Program(every=3)
    broken = told(program, 28, 30)
    verdict = judge(program.unbroken(), broken, saving_seconds=0.1, grace=3.0)
    assert verdict.word is Word.EXACT, verdict.text
