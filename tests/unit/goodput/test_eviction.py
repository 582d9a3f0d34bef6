"""Cost of an eviction: monotone in the loss, bounded by the time that ran, and fair to jobs that show no saves."""

from __future__ import annotations

from dataclasses import replace
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.goodput.eviction import Exposure, costs, starting, unsaved
from tpukit.jobs.records import Marks

SECONDS = st.floats(0, 1e6)
EXPOSURES = st.builds(
    Exposure,
    ran=SECONDS,
    unsaved=st.none() | SECONDS,
    starting=st.none() | SECONDS,
    chips=st.integers(1, 8192),
    usd_per_hour=st.none() | st.floats(0.01, 1e5),
)
JOBS = st.dictionaries(st.sampled_from("abcdefgh"), EXPOSURES, min_size=1)
MARKS = Marks(placed=1000.0, stepped=1100.0, first=10)


@pytest.mark.parametrize(
    ("step", "saved", "marks", "moved", "pace", "expected"),
    [
        (60, 40, MARKS, 1200.0, None, 40.0),  # 50 steps took 100 s, and 20 are not saved
        (60, 40, MARKS, 1200.0, 99.0, 40.0),  # the pace of the whole attempt, saves included, is the better one
        (60, 40, Marks(), 1200.0, 4.0, 5.0),  # until two steps were seen, the program's own figure
        (60, 40, Marks(), 0.0, None, None),
        (60, 40, Marks(), 0.0, float("nan"), None),
        (60, -1, MARKS, 1200.0, 4.0, None),  # no save was ever seen
        (40, 40, MARKS, 1200.0, 4.0, 0.0),
        (None, 40, MARKS, 0.0, None, 0.0),  # resumed, and before its first step
        (12, 40, MARKS, 1200.0, 4.0, 0.0),
    ],
)
def test_unsaved_work_is_the_steps_after_the_save_at_their_pace(step, saved, marks, moved, pace, expected):
    assert unsaved(step, saved, marks, moved, pace) == expected


def test_time_to_start_again_is_that_from_the_slices_to_the_first_step():
    assert starting(MARKS) == 100.0
    assert starting(Marks(placed=1000.0)) is None
    assert starting(Marks(placed=1000.0, stepped=900.0)) is None, "a clock that was set back says nothing"


def test_cost_is_the_time_to_be_repeated_at_the_price_of_all_slices():
    one = Exposure(ran=7200.0, unsaved=1800.0, starting=1800.0, chips=16, usd_per_hour=32.0)
    (found,) = costs({"a": one}).values()
    assert (found.usd, found.unsaved, found.starting) == (32.0, 1800.0, 1800.0)


def test_cost_without_a_list_price_counts_chips():
    one = Exposure(ran=7200.0, unsaved=3600.0, starting=0.0, chips=16, usd_per_hour=None)
    assert costs({"a": one})["a"].usd == 2 * costs({"a": replace(one, chips=8)})["a"].usd


@given(JOBS, st.floats(0, 1e6))
def test_cost_grows_with_what_would_be_lost(jobs, more):
    name = min(jobs)
    one = jobs[name]
    before = costs(jobs)[name].usd
    grown = replace(one, ran=one.ran + more, unsaved=None if one.unsaved is None else one.unsaved + more)
    assert costs({**jobs, name: grown})[name].usd >= before
    assert costs({**jobs, name: replace(one, chips=one.chips + 8)})[name].usd >= before
    if one.usd_per_hour is not None:
        assert costs({**jobs, name: replace(one, usd_per_hour=one.usd_per_hour * 2)})[name].usd >= before


@given(JOBS)
def test_work_to_repeat_is_at_most_the_time_that_the_job_ran(jobs):
    for name, found in costs(jobs).items():
        assert 0 <= found.unsaved <= jobs[name].ran
        assert found.usd >= 0


@given(JOBS)
def test_silent_job_is_taken_for_the_median_of_the_others_or_its_start_if_that_is_later(jobs):
    shown = [min(one.unsaved, one.ran) for one in jobs.values() if one.unsaved is not None]
    for name, found in costs(jobs).items():
        if jobs[name].unsaved is None:
            assert found.unsaved == min([jobs[name].ran, *([median(shown)] if shown else [])])


@given(JOBS, EXPOSURES)
def test_silent_job_changes_no_cost_of_a_job_that_shows_its_saves(jobs, silent):
    with_it = costs({**jobs, "silent": replace(silent, unsaved=None, starting=None)})
    for name, found in costs(jobs).items():
        assert with_it[name] == found
