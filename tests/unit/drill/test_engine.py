"""Order and end of the runs of a drill."""

from __future__ import annotations

from dataclasses import replace

import pytest

from support.drill_world import Program
from tpukit.drill import engine
from tpukit.drill.engine import Progress
from tpukit.drill.limits import Limits
from tpukit.drill.losses import Damage, Loss, What, When
from tpukit.drill.running import Run
from tpukit.jobs import plan
from tpukit.jobs.reasons import State
from tpukit.jobs.spec import JobSpec, Settings

PROGRAM = Program()
UNBROKEN = Run("unbroken", State.COMPLETED, "", (), PROGRAM.unbroken(), PROGRAM.broken(59).saves)
KILL = Loss("kill-0-0", What.KILL, ((0, 0),), step=24)
TERM = Loss("term", What.TERM, ((0, 0),), step=26)
CORRUPT = Loss("corrupt-newest", What.KILL, ((0, 0),), When.SAVED, 8, damage=Damage.CORRUPT)


@pytest.fixture
def job() -> plan.Plan:
    spec = JobSpec.from_json({"name": "train", "tpu": "v4-8", "command": ["x"]})
    return plan.make(spec, Settings(), "local", taken=[])


class Runs:
    """Runs that end as scripted."""

    def __init__(self, *ends: Run) -> None:
        self._ends = iter(ends)
        self.asked: list[tuple[str, int]] = []

    def run(self, plan: plan.Plan, name: str, loss: Loss, limits: Limits) -> Run:
        self.asked.append((name, loss.step))
        return replace(next(self._ends), name=name)


def test_struck_loss_that_came_too_late_is_tried_earlier_and_the_try_that_counts_is_reported(job):
    hit = PROGRAM.broken(16)
    runs = Runs(UNBROKEN, replace(UNBROKEN, trace=hit.trace, struck=hit.struck, saves=hit.saves))
    loss, run = engine._struck(runs, UNBROKEN, job, KILL, Limits())
    assert runs.asked == [("kill-0-0", 24), ("kill-0-0-2", 16)]
    assert (loss.step, run.name, run.struck) == (16, "kill-0-0-2", hit.struck)


def test_struck_loss_that_always_comes_too_late_is_tried_three_times(job):
    runs = Runs(UNBROKEN, UNBROKEN, UNBROKEN)
    engine._struck(runs, UNBROKEN, job, KILL, Limits())
    assert [step for _, step in runs.asked] == [24, 16, 8]


def test_struck_damage_that_came_too_late_is_never_tried_on_the_only_checkpoint(job):
    runs = Runs(UNBROKEN, UNBROKEN, UNBROKEN)
    engine._struck(runs, UNBROKEN, job, CORRUPT, Limits())
    assert [step for _, step in runs.asked] == [CORRUPT.step] * 3


def test_work_is_over_after_two_runs_that_hung(job):
    lost = PROGRAM.broken(25)
    trace = tuple(one for one in lost.trace if not one.attempt)
    hung = replace(UNBROKEN, trace=trace, struck=lost.struck, state=State.CANCELLED, given_up="no step for 60 s")
    work = engine._Work(Runs(hung, hung), UNBROKEN, job, Limits())
    for number, (loss, over) in enumerate([(KILL, ""), (TERM, "the runs kill-0-0 and term hung")], 1):
        work.strike(Progress(number, 3, loss), lambda progress: None)
        assert work.over(0.0, 0.0, 1.0) == over
