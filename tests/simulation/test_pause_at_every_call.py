"""Tests with a driver that is suspended for two minutes before any of its calls, while another one continues."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace

import pytest

from simulation.pausing import pause_at_every_call
from simulation.plans import Event, JobPlan, MachinePlan, Plan, SetPlan
from simulation.simulator import Simulator

STEP = int(os.environ.get("PAUSE_STEP", "5"))
"""Interval of the paused calls; 1 pauses all of them and takes minutes."""
MACHINES = (MachinePlan(tick=10.0), MachinePlan(tick=10.0, latency=0.2, renews=True))
JOB = JobPlan(seconds=60.0, code=False)
GKE = {
    "the other driver finishes it": (Event(60.0, "preempt"),),
    "a person stops it": (Event(50.0, "preempt"), Event(90.0, "stop")),
    "a person stops and resumes it": (Event(45.0, "stop"), Event(110.0, "resume")),
    "it is evicted": (Event(50.0, "evict", 0, 60.0),),
}
VM_JOB = JobPlan(seconds=60.0, code=True, queued=False)
VM = {
    "the other driver finishes it": (Event(60.0, "preempt"),),
    "a person stops it": (Event(50.0, "preempt"), Event(90.0, "stop")),
    "a person stops and resumes it": (Event(45.0, "stop"), Event(110.0, "resume")),
    "a sweep finds what arrived late": (Event(40.0, "stop"), Event(150.0, "orphan"), Event(300.0, "resume")),
    "the code is uploaded for minutes": (Event(0.0, "slow upload", 0, 200.0), Event(150.0, "stop")),
}
FOLLOWER = (replace(MACHINES[0], renews=True), MACHINES[1])
"""Machines whose driver renews leases in parallel to its rounds, as in `tpu run` and `tpu serve`."""
QUEUE = {
    "the other worker goes on": (),
    "an application cancels": (Event(30.0, "stop"), Event(60.0, "stop", 1)),
    "the other machine restarts": (Event(40.0, "clear state", 1),),
}
FLEET = {
    "a TPU VM is preempted": (Event(100.0, "preempt"),),
    "a person deletes the fleet": (Event(120.0, "stop"),),
}
SET = SetPlan(seconds=100.0, slices=1, tpu="v4-16")
POOLS = {
    "the other replica finishes it": (Event(200.0, "preempt", 0, 60.0),),
    "a person deletes the JobSet": (Event(40.0, "delete jobset"),),
    "a person sends the JobSet again": (Event(150.0, "recreate jobset", 0, 20.0),),
    "it is suspended for long": (Event(180.0, "evict", 0, 640.0),),
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


@pytest.mark.parametrize("meanwhile", VM)
def test_follower_paused_before_any_call_of_a_job_on_tpu_vms_breaks_nothing(simulator, meanwhile):
    events = VM[meanwhile]
    plan = Plan(7, FOLLOWER, (VM_JOB,), (), events, events[-1].at + 10, "jobs")
    count, broken = pause_at_every_call(simulator, plan, step=STEP)
    assert count > 30 // STEP
    assert not broken


@pytest.mark.parametrize("meanwhile", QUEUE)
def test_supervisor_and_worker_paused_before_any_call_for_the_queue_break_nothing(simulator, meanwhile):
    events = QUEUE[meanwhile]
    plan = Plan(7, MACHINES, (), (), events, 200.0, "queue")
    count, broken = pause_at_every_call(simulator, plan, step=STEP)
    assert count > 40 // STEP
    assert not broken


@pytest.mark.parametrize("meanwhile", FLEET)
def test_driver_paused_before_any_call_of_a_fleet_breaks_nothing(simulator, meanwhile):
    events = FLEET[meanwhile]
    plan = Plan(7, MACHINES, (VM_JOB,), (), events, events[-1].at + 10, "fleet")
    count, broken = pause_at_every_call(simulator, plan, step=STEP**2)  # a fleet makes many calls
    assert count > 40 // STEP**2
    assert not broken


@pytest.mark.parametrize("meanwhile", POOLS)
def test_replica_paused_before_any_call_for_a_node_pool_breaks_nothing(simulator, meanwhile):
    events = POOLS[meanwhile]
    plan = Plan(7, MACHINES, (SET,), (), events, events[-1].at + events[-1].seconds + 10, "provisioner")
    count, broken = pause_at_every_call(simulator, plan)
    assert count > 20
    assert not broken
