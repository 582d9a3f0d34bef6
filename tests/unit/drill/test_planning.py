"""Planned losses: which ones, in which order, and at which steps."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tpukit.core.errors import Invalid
from tpukit.drill.losses import When
from tpukit.drill.planning import NEED_SAVES, Unbroken, check_only, plan

RUN = Unbroken(2, 2, tuple(range(1, 61)), (10, 20, 30, 40, 50), seconds=10.0, largest_file=9000, largest_log=2000)
RUNS = st.builds(
    lambda slices, hosts, steps, every: Unbroken(
        slices, hosts, tuple(range(1, steps + 1)), tuple(range(every, steps, every)), 10.0, 9000, 2000
    ),
    st.integers(1, 4),
    st.integers(1, 4),
    st.integers(2, 300),
    st.integers(1, 100),
)


def names(run=RUN, **options):
    return [loss.name for loss in plan(run, **options).losses]


@settings(max_examples=30)
@given(RUNS, st.integers(0, 2**32))
def test_plan_every_host_is_killed_once_every_name_is_unique_and_every_step_is_one_of_the_run(run, seed):
    losses = plan(run, seed).losses
    assert len({loss.name for loss in losses}) == len(losses)
    for slice_ in range(run.slices):
        for host in range(run.hosts):
            assert f"kill-{slice_}-{host}" in {loss.name for loss in losses}
    for loss in losses:
        assert run.steps[0] <= loss.step <= run.steps[-1]
        assert all(slice_ < run.slices and index < run.hosts for slice_, index in loss.hosts)
    assert {f"slice-{slice_}" for slice_ in range(run.slices) if run.slices > 1 and run.hosts > 1} <= {
        loss.name for loss in losses
    }


@settings(max_examples=30)
@given(RUNS, st.integers(0, 2**32))
def test_plan_the_same_seed_gives_the_same_plan_and_only_gives_the_same_losses(run, seed):
    losses = plan(run, seed).losses
    assert losses == plan(run, seed).losses
    assert plan(run, seed, only=["term"]).losses == tuple(loss for loss in losses if loss.name == "term")


def test_plan_other_seeds_strike_at_other_steps():
    assert len({plan(RUN, seed).losses[0].step for seed in range(20)}) > 5


def test_plan_small_budget_takes_the_most_telling_first_and_says_what_it_left_out():
    chosen = plan(RUN, budget=60.0)
    assert [loss.name for loss in chosen.losses] == names()[:3] == ["kill-1-1", "term", "save-half"]
    assert dict(chosen.left_out)["hang"] == "the budget is too small"


def test_plan_only_takes_names_and_beginnings():
    assert sorted(names(only=["kill", "slice-1"])) == ["kill-0-0", "kill-0-1", "kill-1-0", "kill-1-1", "slice-1"]
    assert names(only=["trunc"]) == ["truncated-newest"]
    with pytest.raises(Invalid, match="there is no loss 'ill'"):
        plan(RUN, only=["ill"])


def test_plan_without_saves_says_what_cannot_be_tried():
    chosen = plan(replace(RUN, saves=()))
    assert {name for name, _ in chosen.left_out} == set(NEED_SAVES)
    assert all(loss.when is When.AT_STEP for loss in chosen.losses)


def test_plan_program_without_steps_has_nothing_to_compare():
    chosen = plan(replace(RUN, steps=(), saves=()))
    assert chosen.losses == ()
    assert "no step" in chosen.left_out[0][1]


def test_plan_full_disk_needs_files_that_are_larger_than_logs():
    assert "disk-full" in names()
    small = replace(RUN, largest_file=1000)
    assert "disk-full" not in names(small)
    assert "larger than the logs" in dict(plan(small).left_out)["disk-full"]


def test_plan_before_the_first_save_and_after_others_are_as_named():
    losses = {loss.name: loss for loss in plan(RUN).losses}
    assert losses["before-first-save"].step < 10
    assert losses["twice-saved"].step > 10
    assert losses["truncated-newest"].step >= 10  # the next save is the second, so an older one exists


@settings(max_examples=30)
@given(st.integers(0, 2**32))
def test_plan_preemption_comes_when_there_is_something_to_save(seed):
    (term,) = plan(RUN, seed, only=["term"]).losses
    assert 5 <= term.step % 10 < 8


def test_check_only_refuses_a_word_that_begins_no_loss_before_anything_runs():
    check_only(["trunc", "kill-1", "save"], 2, 2)
    with pytest.raises(Invalid, match="there is no loss 'zork'"):
        check_only(["zork"], 2, 2)
    with pytest.raises(Invalid, match="kill-1"):
        check_only(["kill-1"], 1, 2)
    with pytest.raises(Invalid, match="there is no loss ''"):
        check_only([""], 1, 1)


def test_plan_slices_of_one_host_are_not_lost_twice():
    one_host = replace(RUN, hosts=1)
    assert not [name for name in names(one_host) if name.startswith("slice-")]
    assert {"kill-0-0", "kill-1-0"} <= set(names(one_host))
