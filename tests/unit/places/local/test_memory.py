"""The local place: its memory of attempts is bounded."""

from __future__ import annotations

from dataclasses import replace

from tpukit.core.clock import ManualClock
from tpukit.jobs import plan
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import Handle
from tpukit.places.local import place as local
from tpukit.places.local import processes as pods
from tpukit.places.local.place import LocalPlace
from tpukit.places.local.processes import Phase, PodState


def test_observations_of_many_attempts_leave_a_bounded_number_of_notes(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "REMEMBERED", 10)
    monkeypatch.setattr(pods, "status", lambda folder: PodState(Phase.RUNNING, began=1.0))
    place = LocalPlace(tmp_path, ManualClock())
    made = plan.make(JobSpec.from_json({"name": "train", "tpu": "v4-8", "command": ["true"]}), Settings(), "local")
    handle = Handle(made, Attempt(0, 0, 0, State.RUNNING))
    for number in range(20):
        place.observe([replace(handle, attempt=Attempt(number, number, 0, State.RUNNING))])
    kept = {name: len(value) for name, value in vars(place).items() if isinstance(value, dict)}
    assert kept
    assert max(kept.values()) <= 10
