"""Priority boosts: bounded by the next class, monotone in the cost, never negative."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.jobs.render.kueue import PRIORITIES
from tpukit.teams import boosts
from tpukit.teams.boosts import BOOST, COST

CLASSES = [one.value for one in PRIORITIES]
VALUES = st.integers(-(10**9), 10**9)
USD = st.floats(0, 1e12) | st.floats(0, 100)


@given(st.lists(VALUES, min_size=1, max_size=6, unique=True), st.data())
def test_no_boost_inverts_two_priorities(classes, data):
    low, high = sorted((data.draw(st.sampled_from(classes)), data.draw(st.sampled_from(classes))))
    costly, cheap = data.draw(USD), data.draw(USD)
    boosted = low + boosts.boost(costly, boosts.room(low, classes))
    over = high + boosts.boost(cheap, boosts.room(high, classes))
    assert low <= boosted
    if low < high:
        assert boosted < high <= over, "a waiting job of the higher class, which has no boost, may evict it"


@given(USD, USD, st.integers(0, boosts.MOST))
def test_boost_grows_with_the_cost_and_stays_in_its_room(one, other, most):
    less, more = sorted((one, other))
    assert 0 <= boosts.boost(less, most) <= boosts.boost(more, most) <= most


def test_boost_in_our_classes_tells_cents_from_dollars_and_dollars_from_thousands():
    most = boosts.room(0, CLASSES)
    found = [boosts.boost(usd, most) for usd in (0.0, 0.05, 0.10, 1.0, 2.0, 10.0, 1000.0, 1e6, 1e9)]
    assert most == 999
    assert found == [*sorted(set(found[:-1])), most]
    assert found[0] == 0


@pytest.mark.parametrize(
    ("priority", "classes", "expected"),
    [
        (0, CLASSES, 999),
        (1000, CLASSES, 999),  # no class is above: a limit all the same
        (0, [0, 1], 0),  # neighbours leave no room
        (0, [0, 10, -5], 9),
        (500, CLASSES, 499),  # a priority that belongs to no class
    ],
)
def test_room_ends_below_the_next_class(priority, classes, expected):
    assert boosts.room(priority, classes) == expected


@pytest.mark.parametrize(
    ("current", "wanted", "most", "expected"),
    [
        (None, 0, 999, True),
        (100, 105, 999, False),
        (100, 111, 999, True),
        (100, 89, 999, True),
        (500, 9, 9, True),  # a class that was added below it
        (500, 500, 400, True),
        (4, 4, 9, False),
        (4, 5, 9, True),
    ],
)
def test_boost_is_written_again_only_if_it_changed_enough(current, wanted, most, expected):
    assert boosts.is_due(current, wanted, most) is expected


def workload(**notes):
    return {"metadata": {"name": "w", "annotations": notes}}


def test_what_was_written_is_read_back():
    shown = {"metadata": {"annotations": boosts.written(321, 12.5, 480.2)}}
    assert boosts.current(shown) == 321
    assert boosts.published(shown) == boosts.Published(12.5, 480.0)
    assert not boosts.is_foreign(shown)
    assert set(boosts.removed()) == set(boosts.written(1, 1.0, 1.0))


def test_boost_of_another_program_is_left_alone():
    theirs = workload(**{BOOST: "7"})
    assert boosts.is_foreign(theirs)
    assert boosts.current(theirs) is None
    assert boosts.published(theirs) is None


@pytest.mark.parametrize("text", ["", "soon", "nan", "inf"])
def test_cost_that_is_no_number_is_not_shown(text):
    assert boosts.published(workload(**{COST: text, BOOST: "x"})) is None
    assert boosts.current(workload(**{COST: text, BOOST: "x"})) is None
    assert boosts.published({"metadata": {}}) is None
