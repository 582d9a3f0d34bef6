"""A command that waits says so after seconds, and ends with what to do."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.core import waiting
from tpukit.core.clock import ManualClock
from tpukit.core.errors import NotYet


@given(needed=st.floats(0.0, 100.0), limit=st.floats(10.0, 100.0), pause=st.floats(0.1, 2.0))
def test_wait_is_reported_once_within_seconds_and_ends_when_done_or_at_the_limit(needed, limit, pause):
    clock, said = ManualClock(), []
    began = clock.monotonic()
    told = lambda text: said.append((clock.monotonic() - began, text))  # noqa: E731
    done = lambda: clock.monotonic() - began >= needed  # noqa: E731
    try:
        waiting.until(clock, limit, done, "g-v4-8-1 to be created", hint="run it again", pause=pause, say=told)
    except NotYet as error:
        assert needed > limit and "g-v4-8-1 to be created" in str(error) and "run it again" in str(error)
    waited = clock.monotonic() - began
    assert waited <= min(needed, limit) + pause + 1e-6
    assert len(said) <= 1 and (said or waited <= waiting.TELL_SECONDS + 2 * pause + 1e-6)
    assert all(at <= waiting.TELL_SECONDS + pause + 1e-6 and "g-v4-8-1 to be created" in text for at, text in said)


def test_wait_for_what_is_there_says_nothing():
    waiting.until(ManualClock(), 0.0, lambda: True, "it", hint="", pause=1.0, say=pytest.fail)
