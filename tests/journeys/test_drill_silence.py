"""Timeout of a drill for a program that reports nothing, on a manual clock."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import pytest

from journeys.world import SimulatedPlace, Try
from tpukit.core.clock import ManualClock
from tpukit.drill.limits import Limits
from tpukit.drill.losses import Loss
from tpukit.drill.running import Run, Runs
from tpukit.drill.sites import Folders, Host
from tpukit.jobs import plan
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.kernel.store.sqlite import SqliteStore

SILENCE = 10.0


class Site:
    """Hosts that follow a script and print nothing."""

    round_seconds = 0.05
    limits_logs = True

    def __init__(self, folder: Path, clock: ManualClock) -> None:
        self._folder = folder
        self.place = SimulatedPlace(clock)

    def prepare(self, plan: plan.Plan) -> plan.Plan:
        return plan

    def job_id(self, run: str) -> str:
        return run

    def folders(self, run: str) -> Folders:
        work = self._folder / "work"
        return Folders(str(work), work, str(work), work)

    def hosts(self, *_: object) -> Sequence[Host]:
        return ()

    def line(self, text: str) -> str:
        return text

    def impossible(self, loss: Loss) -> str:
        return ""

    def leave(self, victims: Sequence[Host]) -> None: ...

    def preempt(self, victims: Sequence[Host], grace: float) -> None: ...

    def close(self) -> None: ...


@pytest.fixture
def drive(tmp_path):
    clock = ManualClock()

    def run(*tries: Try) -> Run:
        site = Site(tmp_path, clock)
        site.place.script("lost", tries)
        spec = JobSpec.from_json({"name": "lost", "tpu": "v4-16", "command": ["x"], "capacity": "spot"})
        with closing(SqliteStore(tmp_path / "store.db", now=clock.now)) as store:
            made = plan.make(spec, Settings(), "local", taken=[])
            return Runs(store, site, clock).run(made, "lost", None, Limits(silence=SILENCE))

    return run


def test_drill_attempt_after_a_loss_has_its_own_time_to_report(drive):
    preempted = Try(Reason.PREEMPTED, runs=0.8 * SILENCE, saves=1)
    done = drive(preempted, preempted, Try(runs=0.8 * SILENCE))
    assert (done.state, done.given_up, len(done.attempts)) == (State.COMPLETED, "", 3)


def test_drill_attempt_that_reports_nothing_for_too_long_is_ended_with_a_sentence(drive):
    preempted = Try(Reason.PREEMPTED, runs=0.8 * SILENCE, saves=1)
    done = drive(preempted, Try(runs=10 * SILENCE))
    assert done.given_up == "no step was reported for 10 s"
    assert (done.state, len(done.attempts)) == (State.CANCELLED, 2)
    ran = done.attempts[-1].ended - done.attempts[-1].started
    assert SILENCE <= ran < 1.2 * SILENCE
