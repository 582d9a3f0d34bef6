"""Google's APIs of a sandbox, where they create nodes of pools."""

from __future__ import annotations

import pytest

from tpubox.box import emulator
from tpubox.google.wire.settings import Pool
from tpukit.core.errors import Invalid, TpukitError, Transient

POOL = Pool(
    project="one",
    location="us-central2",
    cluster="main",
    name="pool",
    machine_type="ct4p-hightpu-4t",
    slice=None,
    nodes={},
    labels={},
    taints=(),
    capacity="on-demand",
    reservation="",
    max_pods=110,
)


class Server:
    """A server that fails a number of times, then answers."""

    def __init__(self, *failures: TpukitError) -> None:
        self.failures, self.asked = list(failures), 0

    def add(self, _pool: Pool) -> None:
        self.asked += 1
        if self.failures:
            raise self.failures.pop(0)


def test_pool_that_an_api_server_answers_late_for_comes_up_all_the_same():
    server = Server(Transient("late"), Transient("late"))
    emulator.patiently(server.add, seconds=30, pause=0)(POOL)
    assert server.asked == 3


def test_pool_that_is_refused_is_not_tried_again():
    server = Server(Invalid("no"))
    with pytest.raises(Invalid):
        emulator.patiently(server.add, seconds=30, pause=0)(POOL)
    assert server.asked == 1


def test_pool_whose_api_server_stays_away_fails_in_the_end():
    server = Server(*[Transient("away")] * 3)
    with pytest.raises(Transient):
        emulator.patiently(server.add, seconds=0, pause=0)(POOL)
    assert server.asked == 1
