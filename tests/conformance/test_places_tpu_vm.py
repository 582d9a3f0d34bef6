"""Conformance of the TPU VM place, on a cloud that acts by itself."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.place_suite import *  # noqa: F403
from support.place_suite import Stand, handle_of
from support.simulated_tpu_cloud import Hosts, TpuCloud
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Conflict
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import Settings
from tpukit.places.base import Handle
from tpukit.places.local import processes as pods
from tpukit.places.tpu_vm import TpuVmPlace


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


def test_earlier_attempt_that_came_back_with_its_host_leaves_for_the_later_one_and_never_the_other_way(stand):
    earlier = handle_of(stand.plan("[ $TPUKIT_ATTEMPT = 1 ] && echo later; sleep 60"))
    stand.submit(earlier)
    earlier, _ = stand.until(earlier, State.RUNNING)
    later = Handle(earlier.plan, Attempt(1, stage=0, origin=0, action="resume"))
    stand.submit(later)
    later, _ = stand.until(later, State.RUNNING)
    assert stand.observe(earlier).state is State.FAILED
    with pytest.raises(Conflict, match="attempt 1 of job"):
        stand.place.submit(earlier)
    assert stand.observe(later).state is State.RUNNING
    stand.place.stop(later, 0)
