"""`make bench` on pairs of runs: a noisy machine widens the interval and does not move the median across a bar."""

from __future__ import annotations

import importlib.util
import random
import sys
from pathlib import Path

import pytest

_FILE = Path(__file__).resolve().parents[2] / "bench" / "measure.py"
_SPEC = importlib.util.spec_from_file_location("bench_measure", _FILE)
measure = importlib.util.module_from_spec(_SPEC)
sys.modules["bench_measure"] = measure
_SPEC.loader.exec_module(measure)
Pairs, in_turn, median = measure.Pairs, measure.in_turn, measure.median


def noisy(true_ratio: float, seed: int, pairs: int = 21) -> Pairs:
    """Return runs that another load makes up to five times as long, at random on either side."""
    draw = random.Random(seed)
    slow = [draw.choice([1.0, 1.0, 1.0, draw.uniform(1, 5)]) for _ in range(2 * pairs)]
    return Pairs(tuple(slow[:pairs]), tuple(true_ratio * factor for factor in slow[pairs:]))


@pytest.mark.parametrize("seed", range(20))
def test_times_faster_with_room_to_spare_is_never_missed(seed):
    assert noisy(6.0, seed).times_faster().at_least(5.0)


@pytest.mark.parametrize("seed", range(20))
def test_times_faster_far_below_the_bar_is_always_missed(seed):
    assert not noisy(2.0, seed).times_faster().at_least(5.0)


def test_median_interval_holds_the_median_and_is_the_same_each_time():
    values = [1.0, 1.1, 0.9, 1.05, 5.0, 0.95, 1.0]
    first = median(values)
    assert first.low <= first.value <= first.high < 5.0
    assert median(values) == first


def test_in_turn_changes_who_goes_first_and_drops_the_first_of_each():
    calls = []

    def side(name):
        def run():
            calls.append(name)
            return float(len(calls))

        return run

    pairs = in_turn(side("ours"), side("theirs"), 2)
    assert calls == ["ours", "theirs", "ours", "theirs", "theirs", "ours"]
    assert pairs == Pairs((3.0, 6.0), (4.0, 5.0))
