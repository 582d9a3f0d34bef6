"""The local place: what it remembers of attempts does not grow without end."""

from __future__ import annotations

from dataclasses import replace

from tpukit import plan, pods
from tpukit.clock import ManualClock
from tpukit.places import local
from tpukit.places.base import Handle
from tpukit.places.local import LocalPlace
from tpukit.pods import Phase, PodState
from tpukit.reasons import State
from tpukit.records import Attempt
from tpukit.spec import JobSpec, Settings


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
