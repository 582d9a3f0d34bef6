"""Tests of the rare ingredients of plans, and of the limit for unattended hardware."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from simulation import plans, vm_plans
from simulation.plans import Event, JobPlan, MachinePlan, Plan
from simulation.simulator import Simulator

LIMIT = Event(0.0, "limit", 300)
JOB = JobPlan(seconds=600.0, code=False, queued=False)


@pytest.fixture
def simulator() -> Iterator[Simulator]:
    with Simulator() as made:
        yield made


def test_plan_with_an_ingredient_is_drawn_once_and_half_of_the_plans_have_none():
    drawn = [plans.draw(seed) for seed in range(200)]
    jobs = [plan for plan in drawn if plan.scene == "jobs"]
    assert [vm_plans.enrich(plan) for plan in drawn] == [vm_plans.enrich(plan) for plan in drawn]
    assert 0.3 < sum(vm_plans.enrich(plan) == plan for plan in jobs) / len(jobs) < 0.7


@pytest.mark.parametrize("queued", [True, False])
def test_hardware_whose_drivers_all_died_ends_by_itself_after_the_limit(simulator, queued):
    job = JobPlan(seconds=1200.0, code=False, queued=queued)
    gone = Event(300.0, "abandon", 0, 700.0)
    result = simulator.run(Plan(3, (MachinePlan(),), (job,), (), (LIMIT, gone), 1000.0), kept=True)
    assert result.violation is None
    assert [line for line in result.lines if "releases job0" in line and 600 < float(line.split()[0]) < 800]


def test_hardware_that_a_driver_asks_for_does_not_end_by_itself(simulator):
    result = simulator.run(Plan(3, (MachinePlan(),), (JOB,), (), (LIMIT,), 10.0), kept=True)
    assert result.violation is None
    assert not [line for line in result.lines if "releases" in line]
    assert result.seconds > 600
