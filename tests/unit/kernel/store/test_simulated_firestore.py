"""The suite for every home of the store, on a simulated Firestore: all but the parts that need several processes."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

import pytest

from support import store_documents_suite, store_leases_suite
from support.simulated_firestore import Server, firestore
from support.store_home import *  # noqa: F403

__all__ = ["firestore"]


def _in_one_process(suite: Any) -> dict[str, Callable[..., None]]:
    found = {name: test for name, test in vars(suite).items() if name.startswith("test_")}
    return {name: test for name, test in found.items() if not _needs_more(inspect.getsource(test))}


def _needs_more(source: str) -> bool:
    return any(word in source for word in ("home.process", "store.watch", ".watch(JOBS"))


globals().update(_in_one_process(store_documents_suite) | _in_one_process(store_leases_suite))


@pytest.fixture
def address(firestore: Server) -> str:
    return "firestore://simulated-1"
