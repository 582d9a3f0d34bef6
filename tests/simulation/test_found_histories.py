"""Shortest histories that once broke an invariant, as plain data, because drawn plans change over time."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.plans import Event, Fault, JobPlan, MachinePlan, Plan
from simulation.simulator import Simulator

MACHINE = MachinePlan()
HISTORIES = {
    "a driver whose key was never let into a TPU VM of --on recreates it": Plan(
        6378,
        (MachinePlan(dies=500.0), MACHINE),
        (JobPlan(seconds=200.0, slices=2, code=False, on=True),),
        (Fault(0, 3, "cut ssh", 600.0),),
        (Event(58.4, "block ssh", 1, 300.0), Event(241.1, "preempt", 3)),
        1258.4,
    ),
    "a driver that lost the API between two TPU VMs of --on recreates both": Plan(
        6011,
        (MachinePlan(dies=200.0), MACHINE),
        (JobPlan(seconds=60.0, code=False), JobPlan(72.0, 600.0, slices=2, code=False, on=True)),
        (Fault(1, 1, "cut cloud", 300.0, True),),
        (Event(534.6, "preempt", 1),),
        1009.2,
    ),
    "another user's TPU VM has the name that a fleet's request would take": Plan(
        196,
        (MACHINE,),
        (JobPlan(seconds=600.0, code=False),),
        (),
        (Event(15.2, "foreign", 2),),
        1000.0,
        "fleet",
    ),
    "a person stops a job whose name another user's TPU VM has": Plan(
        122,
        (MACHINE,),
        (JobPlan(seconds=600.0, code=False, queued=False),),
        (Fault(0, 2, "lose"),),
        (Event(8.1, "foreign", 1), Event(66.0, "stop", 3)),
        180.0,
    ),
    "one of two slices is lost while the attempt is being started": Plan(
        37620,
        (MachinePlan(latency=1.0), MachinePlan(tick=5.0)),
        (JobPlan(seconds=60.0, slices=2, queued=False, on=True),),
        (Fault(1, 3, "cut cloud", 25.0),),
        (Event(39.9, "preempt", 1),),
        180.0,
    ),
    "a pool is created while the clock of the provisioner is a day ahead": Plan(
        285,
        (MACHINE,),
        (JobPlan(seconds=60.0, code=False, restarts=1),),
        (Fault(0, 3, "crash after", 37.5, True),),
        (Event(16.5, "clock ahead", 1, 100.0),),
        180.0,
        "pools",
    ),
}


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as made:
        yield made


@pytest.mark.parametrize("history", HISTORIES)
def test_history_that_once_broke_an_invariant_breaks_none(simulator, history):
    assert simulator.run(HISTORIES[history]).violation is None
