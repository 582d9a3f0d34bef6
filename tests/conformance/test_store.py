"""What every home of the store promises, shown on the embedded one. The shared one's turn is in tests/cluster."""

from __future__ import annotations

import pytest

from store_suite import *  # noqa: F403


@pytest.fixture
def address() -> str:
    return "sqlite"
