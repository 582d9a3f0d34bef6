"""The promises of a place, on TPU VMs of a cloud that acts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from place_suite import *  # noqa: F403
from place_suite import Stand
from tpukit import pods
from tpukit.clock import SystemClock
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.spec import Settings
from unit.simulated_tpu_cloud import Hosts, TpuCloud


@pytest.fixture
def stand(home: Path) -> Iterator[Stand]:
    cloud = TpuCloud(home / "hosts")

    def place() -> TpuVmPlace:
        return TpuVmPlace(
            home / "data",
            SystemClock(),
            lambda: "this store",
            cloud=lambda project: cloud,
            channel=lambda folder, key: Hosts(cloud),
        )

    gates = home / "gates"
    gates.mkdir()
    settings = Settings.from_json({"project": "my-project-1", "zone": "us-central2-b"})
    yield Stand(place(), place, settings, gates)
    pods.kill_strays(home)
    for attempt in (home / "hosts").glob("*/jobs/*/attempt-*"):
        pods.lose(attempt)
