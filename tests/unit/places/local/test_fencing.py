"""The local place: a driver suspended between decision and act starts and ends nothing of another driver."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tpukit.core import fence
from tpukit.core.clock import ManualClock
from tpukit.core.errors import LeaseLost
from tpukit.jobs import plan
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.base import Handle
from tpukit.places.local import processes as pods
from tpukit.places.local.place import LocalPlace
from tpukit.places.local.processes import Phase, PodState

SPEC = {"name": "train", "tpu": "v4-16", "command": ["true"]}


def lost() -> float:
    raise LeaseLost("another driver has it")


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    done: list[str] = []
    monkeypatch.setattr(pods, "start", lambda pods: done.append("start"))
    monkeypatch.setattr(pods, "stop", lambda folder, grace: done.append("stop"))
    return done


@pytest.fixture
def handle() -> Handle:
    return Handle(plan.make(JobSpec.from_json(SPEC), Settings(), "local"), Attempt(0, 0, 0, State.SCHEDULED))


def test_submit_of_a_driver_that_lost_its_lease_while_it_unpacked_starts_nothing(tmp_path, sent, handle):
    place = LocalPlace(tmp_path, ManualClock())
    with fence.held(lost), pytest.raises(LeaseLost):
        place.submit(handle)
    assert not sent
    place.submit(handle)
    assert sent == ["start"]


def test_stop_of_a_driver_that_lost_its_lease_signals_nothing(tmp_path, sent, handle):
    place = LocalPlace(tmp_path, ManualClock())
    with fence.held(lost), pytest.raises(LeaseLost):
        place.stop(handle, 10.0)
    assert not sent


def test_observation_by_a_driver_that_lost_its_lease_ends_no_peers(tmp_path, sent, handle, monkeypatch):
    states = iter([PodState(Phase.ENDED, code=1, ended=1.0), *[PodState(Phase.RUNNING, began=1.0)] * 9])

    def status(folder: Path) -> Any:
        return next(states)

    monkeypatch.setattr(pods, "status", status)
    place = LocalPlace(tmp_path, ManualClock(start=1000.0))
    with fence.held(lost), pytest.raises(LeaseLost):
        place.observe([handle])
    assert not sent
