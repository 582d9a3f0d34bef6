"""Notes of a place about job behaviour that users may not expect."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tpukit.core.clock import ManualClock
from tpukit.jobs import plan
from tpukit.jobs.plan import Plan, VmTarget
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.gke import GkePlace
from tpukit.places.local.place import LocalPlace
from tpukit.places.tpu_vm import TpuVmPlace

MOUNTS = [{"bucket": "my-data", "path": "/data"}]


def make(place: str, settings: Settings | None = None, **fields: Any) -> Plan:
    spec = {"name": "train", "tpu": "v4-16", "command": ["x"], "image": "i:1", **fields}
    return plan.make(JobSpec.from_json(spec), settings or Settings(), place)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "chips are simulated: 4 CPU devices replace the 4 chips of a host"),
        ({"image": "image:1"}, "the image is not used"),
        ({"mounts": MOUNTS}, "buckets are not mounted on this machine"),
    ],
)
def test_notes_of_this_machine(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    notes = LocalPlace(tmp_path, ManualClock()).notes(make("local", **fields))
    assert any(expected in note for note in notes)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({"tpu": "v5e-8", "slices": 2}, "Google documents multislice for multi-host slices only"),
        ({"tensorboard": True}, "TensorBoard data stays in the workdir"),
    ],
)
def test_notes_of_gke(tmp_path: Path, fields: dict[str, Any], expected: str) -> None:
    notes = GkePlace(tmp_path, ManualClock(), lambda: "me").notes(make("gke", **fields))
    assert any(expected in note for note in notes)


def test_notes_of_gke_where_all_is_as_expected_there_are_none(tmp_path: Path) -> None:
    assert (
        list(GkePlace(tmp_path, ManualClock(), lambda: "me").notes(make("gke", slices=2, max={"unattended": "0s"})))
        == []
    )


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, "the setting `tensorboard` is not set"),
        ({"tensorboard": "projects/p/locations/us-central1/tensorboards/1"}, "the first host uploads"),
    ],
)
def test_notes_of_tpu_vms_say_where_tensorboard_data_goes(
    tmp_path: Path, settings: dict[str, Any], expected: str
) -> None:
    made = make("tpu-vm", Settings.from_json(settings), tensorboard=True)
    made = replace(made, target=VmTarget("p", "us-central2-b", "me"))
    notes = TpuVmPlace(tmp_path, ManualClock(), lambda: "me").notes(made)
    assert any(expected in note for note in notes)


def test_limit_of_gke_is_the_time_without_a_driver(tmp_path: Path) -> None:
    place = GkePlace(tmp_path, ManualClock(), lambda: "me")
    assert place.limit(make("gke")) == "its slices are released after 1d without a driver (max.unattended)"
    assert "max.unattended is 0s" in place.limit(make("gke", max={"unattended": "0s"}))
