"""Retries: pauses that grow to a bound, and calls that are repeated after errors that pass."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some

from tpukit.core import retry
from tpukit.core.errors import Denied, Transient


@given(some.integers(0, 5000), some.floats(0.01, 100.0), some.floats(0.0, 1.0))
def test_growing_waits_double_up_to_the_longest_and_spread_waits_are_at_least_half(failures, first, random):
    longest = first * 64
    wait = retry.growing(failures, first, longest)
    assert wait == min(longest, first * 2 ** (min(max(failures, 1), 7) - 1))
    assert wait / 2 <= retry.spread(wait, random) <= wait


class Failing:
    """Work that fails with the given errors, then returns."""

    def __init__(self, *errors: Exception) -> None:
        self.errors, self.pauses = list(errors), []

    def __call__(self) -> str:
        if self.errors:
            raise self.errors.pop(0)
        return "done"


def test_call_is_repeated_with_its_pauses_until_it_returns():
    work = Failing(Transient("a"), Transient("b"))
    assert retry.call(work, (1.0, 2.0, 4.0), work.pauses.append) == "done"
    assert work.pauses == [1.0, 2.0]


def test_call_raises_the_last_error_when_no_pause_is_left():
    work = Failing(Transient("a"), Transient("b"))
    with pytest.raises(Transient, match="b"):
        retry.call(work, (1.0,), work.pauses.append)
    assert work.pauses == [1.0]


def test_call_raises_an_error_that_does_not_pass_at_once():
    work = Failing(Denied("no"))
    with pytest.raises(Denied):
        retry.call(work, (1.0,), work.pauses.append)
    assert not work.pauses


def test_call_waits_as_long_as_the_server_asks_up_to_the_longest():
    work = Failing(Transient("a", retry_after=5.0), Transient("b", retry_after=600.0))
    assert retry.call(work, (1.0, 2.0), work.pauses.append, longest=30.0) == "done"
    assert work.pauses == [5.0, 30.0]


def test_call_asks_with_the_error_and_the_pause_whether_to_go_on():
    work, asked = Failing(Denied("not yet"), Denied("no")), []

    def again(error: Exception, pause: float) -> bool:
        asked.append((str(error), pause))
        return len(asked) < 2

    with pytest.raises(Denied, match="no"):
        retry.call(work, (1.0, 2.0, 3.0), work.pauses.append, again)
    assert asked == [("not yet", 1.0), ("no", 2.0)]
    assert work.pauses == [1.0]
