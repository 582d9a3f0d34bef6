"""A driver that is suspended for two minutes before any of its calls, while another one goes on, breaks nothing."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation.pausing import pause_at_every_call
from simulation.plans import Event, JobPlan, MachinePlan, Plan, SetPlan
from simulation.simulator import Simulator

MACHINES = (MachinePlan(tick=10.0), MachinePlan(tick=10.0, latency=0.2, renews=True))
JOB = JobPlan(seconds=120.0, code=False)
GKE = {
    "the other driver finishes it": (Event(60.0, "preempt"),),
    "a person stops it": (Event(50.0, "preempt"), Event(90.0, "stop")),
    "a person stops and resumes it": (Event(45.0, "stop"), Event(110.0, "resume")),
    "it is evicted": (Event(50.0, "evict", 0, 60.0),),
}
SET = SetPlan(seconds=100.0, slices=1, tpu="v4-16")
POOLS = {
    "the other replica finishes it": (Event(200.0, "preempt", 0, 60.0),),
    "a person deletes the JobSet": (Event(150.0, "delete jobset"),),
    "a person sends the JobSet again": (Event(150.0, "recreate jobset", 0, 20.0),),
    "it is suspended for long": (Event(180.0, "evict", 0, 800.0),),
}


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as made:
        yield made


@pytest.mark.parametrize("meanwhile", GKE)
def test_driver_paused_before_any_call_of_a_job_on_a_cluster_breaks_nothing(simulator, meanwhile):
    events = GKE[meanwhile]
    plan = Plan(7, MACHINES, (JOB,), (), events, events[-1].at + 10, "gke")
    count, broken = pause_at_every_call(simulator, plan)
    assert count > 40
    assert not broken


@pytest.mark.parametrize("meanwhile", POOLS)
def test_replica_paused_before_any_call_for_a_node_pool_breaks_nothing(simulator, meanwhile):
    events = POOLS[meanwhile]
    plan = Plan(7, MACHINES, (SET,), (), events, events[-1].at + events[-1].seconds + 10, "provisioner")
    count, broken = pause_at_every_call(simulator, plan)
    assert count > 20
    assert not broken
