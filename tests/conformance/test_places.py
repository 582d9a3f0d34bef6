"""The promises of a place, on this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from place_suite import *  # noqa: F403
from place_suite import Stand
from tpukit.clock import SystemClock
from tpukit.places.local import LocalPlace
from tpukit.spec import Settings


@pytest.fixture
def stand(home: Path) -> Iterator[Stand]:
    def place() -> LocalPlace:
        return LocalPlace(home / "data", SystemClock())

    gates = home / "gates"
    gates.mkdir()
    yield Stand(place(), place, Settings(), gates)
