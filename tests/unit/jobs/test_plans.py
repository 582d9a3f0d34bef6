"""A driver parses the plan of a record once, and again when the record gets another plan."""

from __future__ import annotations

from tpukit.jobs import plan
from tpukit.jobs.controller.plans import Plans
from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Job
from tpukit.jobs.spec import Settings, loads


def job(command: str = "x") -> Job:
    made = plan.make(loads(f"{{name: a, tpu: v4-16, command: [{command}]}}"), Settings(), "local")
    return Job("a-1", "local", "t", "o", 1.0, made.to_json())


def test_of_equal_plan_of_a_later_read_is_the_same_object():
    plans = Plans()
    assert plans.of(job()) is plans.of(job())


def test_of_record_with_another_plan_reads_it_anew():
    plans = Plans()
    plans.of(job())
    assert plans.of(job("y")) == Plan.from_json(job("y").plan)


def test_keep_only_forgets_jobs_that_are_driven_no_more():
    plans = Plans()
    first = plans.of(job())
    plans.keep_only({"other"})
    assert plans.of(job()) is not first
