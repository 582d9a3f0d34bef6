"""Conformance of the job manager on the embedded store. For the shared store, see tests/cluster."""

from __future__ import annotations

import pytest

from support.manager_kills_suite import *  # noqa: F403
from support.manager_suite import *  # noqa: F403
from support.store_home import *  # noqa: F403


@pytest.fixture
def address() -> str:
    return "sqlite"
