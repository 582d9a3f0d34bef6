"""Writes to Firestore stay within its quota, for any number of threads."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core.clock import ManualClock
from tpukit.core.errors import Invalid
from tpukit.kernel.store.firestore_calls import WRITES, WRITES_PER_SECOND, writes_per_second
from tpukit.kernel.store.pacing import TokenBucket


@given(
    rate=st.floats(0.5, 1000.0),
    steps=st.lists(st.tuples(st.floats(0.0, 3.0), st.integers(1, 500)), min_size=1, max_size=40),
)
def test_in_any_time_there_are_at_most_the_rate_and_what_was_saved_up(rate, steps):
    clock = ManualClock()
    bucket = TokenBucket(rate, now=clock.monotonic, sleep=clock.sleep)
    begin, taken = clock.monotonic(), 0
    for pause, count in steps:
        clock.sleep(pause)
        bucket.take(count)
        taken += count
        assert taken <= rate * (clock.monotonic() - begin + 1.0) + 1e-6 * taken


def test_pace_below_the_rate_never_waits():
    clock, slept = ManualClock(), []
    bucket = TokenBucket(10.0, now=clock.monotonic, sleep=slept.append)
    for _ in range(100):
        bucket.take(1)
        clock.sleep(0.1)
    assert slept == []


def test_rate_comes_from_the_environment_and_nonsense_is_refused(monkeypatch):
    monkeypatch.delenv(WRITES, raising=False)
    assert writes_per_second() == WRITES_PER_SECOND
    monkeypatch.setenv(WRITES, "50")
    assert writes_per_second() == 50.0
    for text in ("many", "0", "-1", "nan"):
        monkeypatch.setenv(WRITES, text)
        with pytest.raises(Invalid, match="not a number of writes"):
            writes_per_second()
