"""Conformance of the GKE place in the sandbox: real Kubernetes, JobSet and Kueue."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.box import SETTINGS, Box, sandbox
from support.place_suite import *  # noqa: F403
from support.place_suite import Stand
from tpukit.core.clock import SystemClock
from tpukit.places.gke import GkePlace


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with sandbox(tmp_path_factory.mktemp("place"), "place") as box:
        box.furnish()
        yield box


@pytest.fixture
def stand(box: Box, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Stand]:
    monkeypatch.setenv("KUBECONFIG", str(box.place.kubeconfig))
    made: list[GkePlace] = []
    visible = box.place.path / "google" / "buckets"  # other folders of this machine below /tmp are hidden from hosts
    visible.mkdir(exist_ok=True)
    gates = Path(tempfile.mkdtemp(dir=visible))

    def place() -> GkePlace:
        """Create a place with a separate folder, because it needs no data of another one."""
        made.append(GkePlace(tmp_path_factory.mktemp("driver"), SystemClock(), lambda: "place-tests"))
        return made[-1]

    yield Stand(place(), place, SETTINGS, gates, fields={"image": "image:1", "capacity": "spot"})
    for one in made:
        one.close()
    for jobset in box.cluster.list("JobSet", SETTINGS.team):
        box.cluster.delete("JobSet", jobset["metadata"]["name"], SETTINGS.team)
