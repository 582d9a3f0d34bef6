"""Conformance of the local place."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.place_suite import *  # noqa: F403
from support.place_suite import Stand
from tpukit.core.clock import SystemClock
from tpukit.jobs.spec import Settings
from tpukit.places.local.place import LocalPlace


@pytest.fixture
def stand(home: Path) -> Iterator[Stand]:
    def place() -> LocalPlace:
        return LocalPlace(home / "data", SystemClock())

    gates = home / "gates"
    gates.mkdir()
    yield Stand(place(), place, Settings(), gates)
