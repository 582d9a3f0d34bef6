"""Malformed queue documents: each ends with a message, and the jobs behind it run."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.simulated_firestore import Server, Stored, firestore
from tpukit.code_queue import Client, claims
from tpukit.code_queue.decide import Outcome, unfit
from tpukit.code_queue.driver import LEADER, LEADER_SECONDS, Driver, Leadership
from tpukit.code_queue.records import COMPLETED, ENDED, FAILED, TPU_JOBS, QueuedJob, tidy
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Invalid, LeaseLost, Transient
from tpukit.jobs.reasons import Reason
from tpukit.kernel.store import Entry, Holder, Store, codec
from tpukit.kernel.store.firestore import FirestoreStore
from tpukit.kernel.store.sqlite import SqliteStore

__all__ = ["firestore"]

NOW = datetime.now(UTC)
PLAIN = {"code": "result = 1", "timeout": 60, "status": "pending", "created_at": NOW}


class GeoPoint:
    """A type of the client library without a JSON form."""


BAD: dict[str, dict[str, Any]] = {
    "large code": {"code": "#" * 1_040_000},
    "large metadata": {"code": "#" * 850_000, "metadata": {"x": "y" * 190_000}},
    "large field of its own": {"code": "#" * 100_000, "data": "d" * 940_000},
    "nan priority": {"priority": math.nan},
    "inf priority": {"priority": math.inf},
    "nan timeout": {"timeout": math.nan},
    "timeout text": {"timeout": "60"},
    "nan inside metadata": {"metadata": {"a": [1, {"b": math.nan}]}},
    "object inside metadata": {"metadata": {"where": GeoPoint()}},
    "metadata list": {"metadata": [1]},
    "null code": {"code": None},
    "bytes code": {"code": b"\x00\xff"},
    "timestamp priority": {"priority": NOW},
    "null status": {"status": None},
    "unknown status": {"status": "Pending"},
    "number status": {"status": 7},
}
FINE: dict[str, dict[str, Any]] = {
    "nulls in fields of the service": {
        **dict.fromkeys(("started_at", "completed_at", "logs", "worker", "result", "error", "attempts", "cancel")),
        "max_faults": "5",
        "not_before": math.nan,
        "faults": -3,
    },
    "created by a clock of another age": {"created_at": 1e300},
    "created as text": {"created_at": "today"},
    "timestamps and bytes in metadata": {"metadata": {"at": NOW, "raw": b"\x00"}},
    "null metadata": {"metadata": None},
}


def write(server: Server, key: str, fields: dict[str, Any]) -> None:
    """Write a document as a program without tpukit does."""
    server.documents[f"tpu_jobs/{key}"] = Stored({**PLAIN, **fields}, server.moment())


def work(store: Store, holder: Holder) -> list[str]:
    """Take and complete every claimable job, and return their keys."""
    done = []
    while claimed := claims.take(store, holder, random.Random(1)):
        claims.finish(store, claimed, Outcome(Reason.DONE, "1"))
        done.append(claimed.key)
    return done


@pytest.mark.parametrize("name", BAD)
@pytest.mark.parametrize("supervised", [True, False], ids=["supervisor first", "worker first"])
def test_bad_document_with_the_highest_priority_ends_with_a_sentence_and_the_others_run(firestore, name, supervised):
    store = FirestoreStore("simulated-1")
    write(firestore, "bad", {"priority": 100, **BAD[name]})
    for index in range(3):
        write(firestore, f"good-{index}", {})
    driver = Driver(store, ManualClock(), Holder("d"))
    done: list[str] = []
    for _ in range(6):
        if supervised:
            driver.round()
        done += work(store, Holder("w"))
        driver.round()
    assert {key for key in done if key != "bad"} == {"good-0", "good-1", "good-2"}
    job = store.get(TPU_JOBS, "bad").value
    assert job.status in ENDED
    if "bad" not in done:  # a real worker checks a job before it runs it
        assert (job.status, bool(job.error), job.reason) == (FAILED, True, "cannot start")


@pytest.mark.parametrize("name", FINE)
def test_document_with_odd_fields_that_are_not_its_own_runs(firestore, name):
    store = FirestoreStore("simulated-1")
    write(firestore, "odd", FINE[name])
    driver = Driver(store, ManualClock(), Holder("d"))
    driver.round()
    driver.round()
    assert work(store, Holder("w")) == ["odd"]
    assert store.get(TPU_JOBS, "odd").value.status == COMPLETED


@pytest.fixture
def sqlite(tmp_path) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "store.db")
    yield store
    store.close()


@pytest.mark.parametrize("priority", [math.nan, math.inf, 10**400, "high", None])
def test_submit_with_a_priority_that_is_none_is_refused_with_a_sentence(sqlite, priority):
    with pytest.raises(Invalid, match="priority"):
        Client(sqlite).submit("result = 1", priority=priority)
    assert not sqlite.keys(TPU_JOBS)


def test_document_that_the_store_refuses_ends_and_those_behind_it_run(sqlite, monkeypatch):
    """SQLite has no size limit: a store that refuses large documents simulates one."""
    client = Client(sqlite)
    bad = client.submit("#" * 500_000, priority=100)
    good = client.submit("result = 1")
    put, claim = sqlite.put, sqlite.claim

    def limited(call):
        def checked(kind, entry, value, *args, **options):
            if len(str(value.code)) > 400_000:
                raise Invalid("it takes more bytes than there are")
            return call(kind, entry, value, *args, **options)

        return checked

    monkeypatch.setattr(sqlite, "put", limited(put))
    monkeypatch.setattr(sqlite, "claim", limited(claim))
    assert work(sqlite, Holder("w")) == [good]
    ended = client.get(bad)
    assert (ended.status, "more bytes than there are" in ended.error) == (FAILED, True)
    assert ended.code.endswith("(cut: 500,000 characters)")


anything = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=5)
    | st.binary(max_size=5)
    | st.just(NOW),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=3), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.sampled_from(QueuedJob.__struct_fields__), anything), st.integers(0, 3))
def test_unfit_of_any_document_can_be_stored_and_says_why(fields, repeated):
    doc = {**fields, **{f"own-{index}": "x" * 400_000 for index in range(repeated)}}
    doc["code"] = "c" * 1_000_000
    read = codec.read(TPU_JOBS, "k", doc, 1, None)
    assert isinstance(read, Entry)  # no program can make it unreadable
    assert tidy(tidy(dict(doc))) == tidy(dict(doc))
    entry, job = unfit(read, read.value, "too large", 5.0)
    stored = codec.encode(TPU_JOBS, job, entry.raw, 2)
    assert len(codec.to_json(stored)) < 100_000
    if read.value.status not in ENDED:
        assert (job.status, bool(job.error)) == (FAILED, True)


# Supervisor


@pytest.fixture
def world(tmp_path):
    clock = ManualClock()
    store = SqliteStore(tmp_path / "leader.db", now=clock.now)
    yield clock, store
    store.close()


def test_check_of_a_supervisor_that_was_suspended_while_another_took_over_refuses_the_act(world):
    clock, store = world
    first, second = Leadership(store, Holder("a"), clock), Leadership(store, Holder("b"), clock)
    lease = first.hold("x")
    assert first.check(lease) == LEADER_SECONDS
    assert second.hold("x") is None
    clock.suspend(LEADER_SECONDS + 1)  # the monotonic clock stops during a suspension
    assert second.hold("x") is not None
    with pytest.raises(LeaseLost):
        first.check(lease)
    assert not first.leading()
    with pytest.raises(LeaseLost):
        first.check(lease)


def test_check_renews_before_little_is_left_and_counts_from_before_the_renewal(world):
    clock, store = world
    leader = Leadership(store, Holder("a"), clock)
    lease = leader.hold("x")
    clock.sleep(LEADER_SECONDS / 2)
    assert leader.check(lease) == pytest.approx(LEADER_SECONDS / 2)
    clock.sleep(LEADER_SECONDS / 4)
    assert leader.check(lease) == LEADER_SECONDS
    assert store.lease(LEADER).ends == pytest.approx(clock.now() + LEADER_SECONDS)


def test_check_while_the_store_is_away_holds_for_the_rest_of_the_lease_and_no_longer(world, monkeypatch):
    clock, store = world
    leader = Leadership(store, Holder("a"), clock)
    lease = leader.hold("x")

    def away(*args: Any) -> Any:
        raise Transient("no route")

    monkeypatch.setattr(store, "renew", away)
    clock.sleep(LEADER_SECONDS - 2)
    assert leader.check(lease) == pytest.approx(2.0)
    clock.sleep(3)
    with pytest.raises(LeaseLost, match="expired while the store was unreachable"):
        leader.check(lease)


def test_check_of_a_token_that_was_taken_again_since_refuses_the_act_of_the_earlier_one(world):
    clock, store = world
    leader = Leadership(store, Holder("a"), clock)
    before = leader.hold("x")
    store.release(before)
    leader.lost("x")
    after = leader.hold("x")
    assert leader.check(after) == LEADER_SECONDS
    with pytest.raises(LeaseLost):
        leader.check(before)


@pytest.mark.parametrize("call", ["lease", "get", "put"])
def test_finish_of_a_worker_paused_before_a_call_while_another_completes_the_job_writes_nothing(
    world, monkeypatch, call
):
    clock, store = world
    client, driver = Client(store), Driver(store, clock, Holder("d"))
    key = client.submit("result = 1")
    slow = claims.take(store, Holder("slow"), random.Random(1))
    original, paused = getattr(store, call), []

    def pause(*args: Any, **options: Any) -> Any:
        if not paused:
            paused.append(call)
            clock.suspend(claims.SECONDS + 1)
            driver.round()
            clock.sleep(10.0)
            quick = claims.take(store, Holder("quick"), random.Random(1))
            assert quick and claims.finish(store, quick, Outcome(Reason.DONE, "quick"))
        return original(*args, **options)

    if call != "put":  # the calls that follow a refused write
        entry = store.get(TPU_JOBS, key)
        store.put(TPU_JOBS, entry, entry.value)
    monkeypatch.setattr(store, call, pause)
    assert claims.finish(store, slow, Outcome(Reason.DONE, "slow")) is None
    assert paused
    job = store.get(TPU_JOBS, key).value
    assert (job.status, job.result, job.attempts) == (COMPLETED, "quick", 2)
    with pytest.raises(Conflict):
        store.renew(slow.lease, 60.0)
