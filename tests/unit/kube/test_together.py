"""Concurrent reads of a command."""

import threading

import pytest

from support.waiting import PATIENCE
from tpukit.core.errors import Denied
from tpukit.kube.together import together


def test_reads_run_at_the_same_time_and_return_in_their_order():
    meeting = threading.Barrier(3, timeout=PATIENCE)

    def read(answer):
        meeting.wait()  # fails unless all three wait together
        return answer

    assert together(lambda: read(1), lambda: read(2), lambda: read(3)) == [1, 2, 3]


def test_read_that_fails_raises_its_error():
    def refuse():
        raise Denied("no")

    with pytest.raises(Denied, match="no"):
        together(lambda: 1, refuse)
