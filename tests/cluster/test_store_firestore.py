"""Conformance of the Firestore store, on Google's emulator."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from support.firestore_emulator import PROJECT, Emulator, emulator
from support.manager_kills_suite import *  # noqa: F403
from support.manager_suite import *  # noqa: F403
from support.store_documents_suite import *  # noqa: F403
from support.store_home import *  # noqa: F403
from support.store_home import LONG, A, B, add, ids, job, put, texts
from support.store_leases_suite import *  # noqa: F403
from support.waiting import until
from tpukit.core.errors import Conflict, Invalid, Transient
from tpukit.jobs.reasons import State
from tpukit.jobs.records import ACTIVE, JOBS, Attempt
from tpukit.kernel.store import Event
from tpukit.kernel.store.firestore_calls import CALL_SECONDS
from tpukit.kernel.store.move import move
from tpukit.kernel.store.sqlite import SqliteStore


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


@pytest.fixture
def client(environment: Mapping[str, str]) -> Iterator[Any]:
    """Yield a plain client, as another program would use it."""
    from google.cloud import firestore

    made = firestore.Client(project=PROJECT)
    yield made
    made.close()


def test_plain_client_reads_native_fields(store, client):
    from google.cloud.firestore_v1.base_query import FieldFilter

    add(store, "a-1", state=State.RUNNING, attempts=(Attempt(0, 0, 0, saved=7),))
    doc = client.document("jobs/a-1").get().to_dict()
    assert (doc["state"], doc["created"], doc["attempts"][0]["saved"]) == ("running", 0.0, 7)
    assert (doc["_version"], doc["_revision"]) == (1, 1)
    assert json.loads(doc["plan"]) == {"spec": {"name": "a"}}
    assert [
        found.id for found in client.collection("jobs").where(filter=FieldFilter("state", "==", "running")).stream()
    ] == ["a-1"]


def test_fields_of_foreign_types_are_kept(store, client):
    add(store, "a-1")
    at = datetime(2026, 1, 2, tzinfo=UTC)
    client.document("jobs/a-1").update({"when": at, "`odd.name`": b"\x00\xff"})
    put(store, store.get(JOBS, "a-1"))
    doc = client.document("jobs/a-1").get().to_dict()
    assert (doc["when"], doc["odd.name"], doc["message"]) == (at, b"\x00\xff", "changed")


def test_document_that_a_plain_client_damaged_is_listed_as_broken(store, client):
    add(store, "a-1", "a-2", "a-3")
    client.document("jobs/a-1").update({"plan": "{"})
    client.document("jobs/a-2").update({"attempts": "none"})
    page = store.list(JOBS)
    assert ids(page) == ["a-3"]
    assert [broken.key for broken in page.broken] == ["a-1", "a-2"]


def test_document_that_is_too_large_is_refused_before_it_is_sent(store):
    unlimited = replace(JOBS, limit=0)  # records of jobs have a lower limit
    with pytest.raises(Invalid, match="the job a-1 takes 1,1"):
        store.create(unlimited, "a-1", job(plan={"filler": "x" * 1_100_000}))
    store.create(unlimited, "a-2", job(plan={"filler": "x" * 1_040_000}))
    assert store.keys(JOBS) == {"a-2"}


def test_lease_that_changes_hands_between_check_and_write_refuses_the_write(store, home):
    """Check the lease in the server, in the same batch as the write."""
    entry = store.create(JOBS, "a-1", job())
    lease = store.acquire("a-1", A, LONG)
    other = home.open()
    commit = store._calls.commit

    def late(batch: Any) -> Any:
        other.release(lease)
        other.acquire("a-1", B, LONG)
        return commit(batch)

    store._calls.commit = late
    with pytest.raises(Conflict, match="lease a-1 is no longer held by a: b holds it"):
        put(store, entry, lease=lease)
    assert other.get(JOBS, "a-1").revision == 1


def test_lease_that_is_renewed_between_check_and_write_is_good_enough(store):
    entry = store.create(JOBS, "a-1", job())
    lease = store.acquire("a-1", A, LONG)
    commit = store._calls.commit

    def late(batch: Any) -> Any:
        store._calls.commit = commit
        store.renew(lease, LONG)
        return commit(batch)

    store._calls.commit = late
    assert put(store, entry, lease=lease, events=[Event(1.0, "once")]).revision == 2
    assert texts(store) == ["once"]


def test_move_to_firestore_and_back_loses_nothing(store, tmp_path):
    first, last = SqliteStore(tmp_path / "first.db"), SqliteStore(tmp_path / "last.db")
    full = job(plan={"lists": [[1], []], "": {"__x__": 2**70}}, attempts=(Attempt(0, 0, 0, learned={"uids": [["a"]]}),))
    first.create(JOBS, "a-1", full, events=[Event(1.0, "sent"), Event(2.0, "began")])
    put(first, replace(first.get(JOBS, "a-1"), raw={**first.get(JOBS, "a-1").raw, "colour": {"deep": [[1]]}}))
    assert move(first, store, JOBS).copied == move(store, last, JOBS).copied == ["a-1"]
    assert move(first, store, JOBS).present == ["a-1"]
    assert last.get(JOBS, "a-1").value == first.get(JOBS, "a-1").value
    assert last.get(JOBS, "a-1").raw["colour"] == {"deep": [[1]]}
    assert last.events(JOBS, "a-1") == first.events(JOBS, "a-1")
    first.close()
    last.close()


def test_put_whose_answer_was_lost_is_there_once(store, monkeypatch):
    entry = store.create(JOBS, "a-1", job())
    commit = store._calls.commit

    def lose(batch: Any) -> Any:
        commit(batch)
        raise Transient("the connection broke")

    monkeypatch.setattr(store._calls, "commit", lose)
    with pytest.raises(Transient):
        put(store, entry, events=[Event(1.0, "once")])
    monkeypatch.undo()
    with pytest.raises(Conflict):
        put(store, entry, events=[Event(1.0, "once")])
    assert (store.get(JOBS, "a-1").value.message, texts(store)) == ("changed", ["once"])


def test_server_away_calls_fail_soon_and_watches_rest_until_it_is_back(firestore_server, store):
    woken = threading.Event()
    store.watch(JOBS, woken.set)
    add(store, "a-1")
    until(woken.is_set, "the listener to begin")
    firestore_server.stop()
    try:
        before = time.monotonic()
        for call in (
            lambda: store.get(JOBS, "a-1"),
            lambda: store.list(JOBS, states=ACTIVE),
            lambda: store.acquire("x", A, LONG),
            lambda: add(store, "a-2"),
        ):
            with pytest.raises(Transient, match="could not be reached"):
                call()
        assert time.monotonic() - before < 4 * CALL_SECONDS, "each was tried once"
        until(lambda: not listening(), "the listener to be put away")
        threads, spent, began = threading.active_count(), time.process_time(), time.monotonic()
        until(lambda: time.monotonic() - began > 3.0, "three seconds without a server", every=0.1)
        assert time.process_time() - spent < 0.5
        assert threading.active_count() <= threads
    finally:
        firestore_server.start()
    # A new key each time, because a call without an answer may have succeeded.
    until(lambda: not fails(lambda: add(store, f"b-{time.monotonic_ns()}")), "the server to be back")
    woken.clear()
    until(
        lambda: not fails(lambda: add(store, f"b-{time.monotonic_ns()}")) and woken.is_set(), "the listener to be back"
    )


def listening() -> bool:
    return any(thread.name == "store-listen" for thread in threading.enumerate())


def fails(call: Callable[[], None]) -> bool:
    try:
        call()
    except Transient:
        return True
    return False
