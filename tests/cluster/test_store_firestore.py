"""What every home of the store promises, shown on Firestore: Google's own emulator of it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from firestore_emulator import PROJECT, Emulator, emulator
from store_suite import *  # noqa: F403


@pytest.fixture(scope="module")
def firestore_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    with emulator(tmp_path_factory.mktemp("firestore") / "log") as server:
        yield server


@pytest.fixture
def environment(firestore_server: Emulator, monkeypatch: pytest.MonkeyPatch) -> Mapping[str, str]:
    firestore_server.reset()
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", firestore_server.address)
    return {"FIRESTORE_EMULATOR_HOST": firestore_server.address}


@pytest.fixture
def address() -> str:
    return f"firestore://{PROJECT}"
