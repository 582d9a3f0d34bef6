"""What every home of the store promises, shown on the embedded one. The shared one's turn is in tests/cluster."""

from __future__ import annotations

import pytest

from support.store_documents_suite import *  # noqa: F403
from support.store_home import *  # noqa: F403
from support.store_leases_suite import *  # noqa: F403


@pytest.fixture
def address() -> str:
    return "sqlite"
