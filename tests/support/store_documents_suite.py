"""Tests of documents, events and watches for every store backend, with threads and with many processes."""

from __future__ import annotations

import signal
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from support.store_home import add, edit, ids, job, put, texts
from support.waiting import PATIENCE, until
from tpukit.core.errors import Conflict, Invalid, NotFound
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import ACTIVE, JOBS, Attempt, Job
from tpukit.kernel.store import Event, Kind, change, everything, unreadable


def test_create_then_get_gives_every_field_back(store, home):
    attempts = (
        Attempt(0, 0, 0, State.FAILED, False, 1.5, 2.5, 7, Reason.HANG, Reason.HANG, "h0", "said ☃ 'this'"),
        Attempt(1, 1, 0, State.RUNNING, True, 3.5, learned={"uids": [["a", 1], []], "": {"a/b": None}, "__x__": 2**70}),
    )
    full = job(
        tags=("x", "y"),
        state=State.RUNNING,
        reason=Reason.HOST_LOST,
        message='a "message"\nof two lines',
        ended=9.25,
        wanted="stop",
        attempts=attempts,
        plan={"spec": {"deep": [1, None, {"ü": 0.1}], "lists": [[1], [[2]]], "": 0, "__name__": "n", "a.b`": {}}},
    )
    made = store.create(JOBS, "a-1", full)
    assert made.value == store.get(JOBS, "a-1").value == home.open().get(JOBS, "a-1").value == full
    assert made.revision == store.get(JOBS, "a-1").revision == 1
    assert isinstance(store.get(JOBS, "a-1").value.attempts[0].reason, Reason)


def test_create_key_that_is_taken_conflicts_and_changes_nothing(store):
    store.create(JOBS, "a-1", job(), events=[Event(1.0, "sent")])
    with pytest.raises(Conflict, match="a-1"):
        store.create(JOBS, "a-1", job(created=5.0), events=[Event(2.0, "sent again")])
    assert store.get(JOBS, "a-1").value.created == 1.0
    assert texts(store) == ["sent"]


def test_create_what_cannot_be_stored_is_refused(store):
    with pytest.raises(Invalid):
        store.create(JOBS, "a-1", job(plan={"x": float("inf")}))
    assert not store.keys(JOBS)


def test_create_text_with_half_a_character_is_stored_without_it(store):
    store.create(JOBS, "a-1", job(message="x\ud800y"), events=[Event(1.0, "\udfff")])
    assert store.get(JOBS, "a-1").value.message == "x?y"
    assert texts(store) == ["?"]


def test_get_unknown_key_is_not_found(store):
    with pytest.raises(NotFound, match="there is no job nope") as error:
        store.get(JOBS, "nope")
    assert error.value.hint == "see `tpu job list`"


def test_put_counts_revisions_and_writes_events_with_it(store):
    entry = store.create(JOBS, "a-1", job(), events=[Event(0.5, "sent")])
    entry = put(store, entry, events=[Event(2.0, "one"), Event(3.0, "two")])
    entry = put(store, entry, fields={"message": "again"}, events=[Event(1.0, "three")])
    read = store.get(JOBS, "a-1")
    assert (entry.revision, read.revision, read.value.message) == (3, 3, "again")
    assert store.events(JOBS, "a-1") == [Event(0.5, "sent"), Event(2.0, "one"), Event(3.0, "two"), Event(1.0, "three")]


def test_put_on_an_old_revision_conflicts_and_leaves_no_trace(store, home):
    old = store.create(JOBS, "a-1", job())
    put(home.open(), store.get(JOBS, "a-1"), fields={"message": "first"})
    for entry in (old, replace(old, proof=None)):
        with pytest.raises(Conflict, match="a-1 was changed"):
            put(store, entry, events=[Event(1.0, "never")])
    assert store.get(JOBS, "a-1").value.message == "first"
    assert texts(store) == []


def test_put_same_value_twice_is_refused_the_second_time(store):
    """If an answer is lost after the write, a retry is refused, and no event is duplicated."""
    entry = store.create(JOBS, "a-1", job())
    put(store, entry, events=[Event(1.0, "once")])
    with pytest.raises(Conflict):
        put(store, entry, events=[Event(1.0, "once")])
    assert texts(store) == ["once"]


def test_put_without_proof_goes_by_the_revision(store):
    store.create(JOBS, "a-1", job())
    assert put(store, replace(store.get(JOBS, "a-1"), proof=None)).revision == 2


def test_put_on_a_document_that_was_deleted_and_made_anew_conflicts(store):
    old = store.create(JOBS, "a-1", job())
    store.delete(JOBS, old)
    with pytest.raises(Conflict):
        put(store, old)
    store.create(JOBS, "a-1", job(message="new"))
    with pytest.raises(Conflict):
        put(store, old)
    assert store.get(JOBS, "a-1").value.message == "new"


def test_delete_takes_its_events_with_it(store):
    entry = store.create(JOBS, "a-1", job(), events=[Event(float(index), "many") for index in range(450)])
    store.create(JOBS, "a-2", job("a-2"), events=[Event(1.0, "another's")])
    store.delete(JOBS, entry)
    assert store.keys(JOBS) == {"a-2"}
    assert (texts(store, "a-1"), texts(store, "a-2")) == ([], ["another's"])
    store.create(JOBS, "a-1", job(), events=[Event(1.0, "new")])
    assert texts(store) == ["new"]


def test_delete_on_an_old_revision_conflicts(store):
    old = store.create(JOBS, "a-1", job(), events=[Event(1.0, "sent")])
    put(store, old)
    with pytest.raises(Conflict):
        store.delete(JOBS, old)
    assert texts(store) == ["sent"]


def test_change_retries_what_somebody_else_was_faster_with(store, home):
    store.create(JOBS, "a-1", job())
    rivals = iter([home.open()])

    def rename(record: Job) -> Job:
        for rival in rivals:
            change(rival, JOBS, "a-1", edit(owner="them"))
        return msgspec.structs.replace(record, message="mine")

    changed = change(store, JOBS, "a-1", rename, note="done", at=3.0)
    assert (changed.value.owner, changed.value.message, changed.revision) == ("them", "mine", 3)
    assert store.events(JOBS, "a-1") == [Event(3.0, "done")]


def test_change_that_refuses_is_asked_once_and_leaves_no_trace(store):
    store.create(JOBS, "a-1", job())
    asked = []

    def refuse(record: Job) -> Job:
        asked.append(record)
        raise Conflict("no")

    with pytest.raises(Conflict, match="no"):
        change(store, JOBS, "a-1", refuse, note="never")
    assert len(asked) == 1
    assert (store.get(JOBS, "a-1").value, texts(store)) == (job(), [])
    with pytest.raises(NotFound):
        change(store, JOBS, "nope", edit())


def test_events_can_be_read_from_a_place_on(store):
    entry = store.create(JOBS, "a-1", job(), events=[Event(9.0, "0")])
    for index in range(1, 12):  # clocks may go back: events keep the order of writing
        entry = put(store, entry, events=[Event(9.0 - index, str(index))])
    assert texts(store) == [str(index) for index in range(12)]
    assert [event.text for event in store.events(JOBS, "a-1", after=10)] == ["10", "11"]
    assert store.events(JOBS, "a-1", after=12) == []
    assert store.events(JOBS, "nope") == []


# Versions


class Old(msgspec.Struct, frozen=True):
    state: str
    at: float
    name: str = ""


class Part(msgspec.Struct, frozen=True):
    number: int
    extra: str = ""


class OldPart(msgspec.Struct, frozen=True):
    number: int


class OldParts(msgspec.Struct, frozen=True):
    state: str
    at: float
    parts: tuple[OldPart, ...] = ()


class NewParts(msgspec.Struct, frozen=True):
    state: str
    at: float
    parts: tuple[Part, ...] = ()
    more: dict[str, list[int]] = {}


class New(msgspec.Struct, frozen=True):
    state: str
    at: float
    title: str


def retitle(doc: dict[str, Any]) -> dict[str, Any]:
    return {"title": doc.pop("name"), **doc}


OLD: Kind[Old] = Kind("things", Old, state="state", order="at")
NEW: Kind[New] = Kind("things", New, state="state", order="at", upgrades=(retitle,))
OLD_PARTS: Kind[OldParts] = Kind("parts", OldParts, state="state", order="at")
NEW_PARTS: Kind[NewParts] = Kind("parts", NewParts, state="state", order="at", upgrades=(dict,))


def test_get_document_of_an_older_version_is_brought_up(store):
    store.create(OLD, "x", Old("on", 1.0, "n"))
    entry = store.get(NEW, "x")
    assert entry.value == New("on", 1.0, "n")
    store.put(NEW, entry, New("off", 1.0, "m"))
    raw = store.get(NEW, "x").raw
    assert (raw["_version"], raw["title"], "name" in raw) == (2, "m", False)


def test_put_by_an_older_version_keeps_what_it_does_not_know(store):
    store.create(NEW_PARTS, "x", NewParts("on", 1.0, (Part(1, "e"), Part(2, "f")), {"k": [1]}))
    entry = store.get(OLD_PARTS, "x")
    store.put(OLD_PARTS, entry, OldParts("off", 2.0, (OldPart(5), OldPart(2), OldPart(9))))
    newer = store.get(NEW_PARTS, "x")
    assert newer.value == NewParts("off", 2.0, (Part(5, "e"), Part(2, "f"), Part(9)), {"k": [1]})
    assert newer.raw["_version"] == 2
    assert [entry.key for entry in store.list(OLD_PARTS, states=["off"]).entries] == ["x"]


def test_documents_that_cannot_be_read_are_listed_beside_the_others(store):
    for index in range(4):
        store.create(OLD, f"x{index}", Old("on", float(index)))
    store.create(NEW, "y", New("on", 1.5, "not for the old"))

    class Strict(msgspec.Struct, frozen=True):
        state: str
        at: float
        name: str

    strict: Kind[Any] = Kind("things", Strict, state="state", order="at")
    page = store.list(strict)
    assert ids(page) == [f"x{index}" for index in range(4)]
    assert [broken.key for broken in page.broken] == ["y"]
    assert "newer" in page.broken[0].why
    assert "name" in page.broken[0].why
    assert store.keys(strict) == {"x0", "x1", "x2", "x3", "y"}
    with pytest.raises(Conflict, match="y") as error:
        store.get(strict, "y")
    assert "upgrade tpukit" in error.value.hint
    first = store.list(strict, limit=3)
    assert (ids(first), len(first.broken)) == (["x0", "x1"], 1)
    assert ids(store.list(strict, limit=3, after=first.next)) == ["x2", "x3"]


class NewerJob(msgspec.Struct, frozen=True):
    """A job from a later version: its states and reasons are arbitrary text."""

    id: str
    created: float
    state: str
    reason: str = ""
    place: str = "gke"
    team: str = "t"
    owner: str = "me"
    plan: dict[str, Any] = {}


NEWER_JOBS: Kind[NewerJob] = Kind("jobs", NewerJob, state="state", order="created", opaque=("plan",))


@pytest.mark.parametrize("limit", [0, 1])
def test_list_by_states_names_documents_whose_state_or_reason_this_version_does_not_know(store, limit):
    add(store, "a", "b")
    change(store, JOBS, "b", edit(state=State.COMPLETED))
    for index, state in enumerate(("aaa", "checkpointing", "paused", "zzz", "running")):
        reason = "quantum flux" if state == "running" else ""
        store.create(NEWER_JOBS, f"new-{state}", NewerJob(f"new-{state}", 9.0 + index, state, reason))
    broken, found, after = set(), [], ""
    while True:
        page = store.list(JOBS, states=ACTIVE, after=after, limit=limit)
        broken |= {one.key for one in page.broken}
        found += ids(page)
        after = page.next
        if not after:
            break
    assert found == ["a"]
    assert broken == {"new-aaa", "new-checkpointing", "new-paused", "new-zzz", "new-running"}
    assert {one.key for one in unreadable(store, JOBS, states=ACTIVE)} == broken
    strangers = store.strangers(JOBS)
    assert {one.key for one in strangers.broken} == broken - {"new-running"}
    assert not strangers.entries
    assert next(one.why for one in strangers.broken if one.key == "new-checkpointing")


# Lists


def test_list_goes_by_order_and_can_be_turned_round(store):
    for number in (2.0, -1.0, 0.0, 1e9, -3.5, 1.0):
        store.create(JOBS, f"a{number:g}", job(f"a{number:g}", created=number))
    assert ids(store.list(JOBS)) == ["a-3.5", "a-1", "a0", "a1", "a2", "a1e+09"]
    assert ids(store.list(JOBS, newest=True, limit=2)) == ["a1e+09", "a2"]


def test_list_by_states_follows_every_change(store):
    add(store, "a", "b", "c", "d")
    assert ids(store.list(JOBS, states=ACTIVE)) == ["a", "b", "c", "d"]
    change(store, JOBS, "b", edit(state=State.COMPLETED))
    change(store, JOBS, "c", edit(state=State.RUNNING))
    assert ids(store.list(JOBS, states=ACTIVE)) == ["a", "c", "d"]
    assert ids(store.list(JOBS, states=ACTIVE, newest=True, limit=2)) == ["d", "c"]
    assert ids(store.list(JOBS, states=["completed"])) == ["b"]
    change(store, JOBS, "b", edit(state=State.PENDING))
    assert ids(store.list(JOBS, states=ACTIVE)) == ["a", "b", "c", "d"]
    assert ids(store.list(JOBS, states=["nonsense"])) == []


@pytest.mark.parametrize("newest", [False, True])
@pytest.mark.parametrize("states", [(), ("pending", "running")])
def test_list_by_pages_gives_each_once_where_orders_are_equal(store, newest, states):
    names = [f"a-{index:02d}" for index in range(11)]
    for index, name in enumerate(names):
        state = State.RUNNING if index % 3 else State.PENDING
        store.create(JOBS, name, job(name, created=float(index // 5), state=state))
    pages, after = [], ""
    while True:
        page = store.list(JOBS, states=states, newest=newest, after=after, limit=2)
        assert len(page.entries) <= 2
        pages += ids(page)
        after = page.next
        if not after:
            break
    assert pages == (names[::-1] if newest else names)
    assert [entry.key for entry in everything(store, JOBS, limit=3)] == names


def test_list_page_that_ends_with_the_last_has_no_next(store):
    add(store, "a", "b")
    assert store.list(JOBS, limit=2).next == ""
    assert store.list(JOBS, limit=1).next


def test_list_after_what_was_deleted_goes_on_behind_it(store):
    add(store, "a", "b", "c")
    first = store.list(JOBS, limit=2)
    store.delete(JOBS, store.get(JOBS, "b"))
    assert ids(store.list(JOBS, after=first.next)) == ["c"]


def test_list_after_nonsense_is_refused(store):
    with pytest.raises(Invalid, match="nonsense"):
        store.list(JOBS, after="nonsense")


def test_keys_gives_those_with_the_prefix_letter_by_letter(store):
    names = ("a-1", "a-2", "ab-1", "A-1", "a%-1", "a/b", "b-1")
    add(store, *names)
    store.create(OLD, "a-9", Old("on", 1.0))
    assert store.keys(JOBS, "a-") == {"a-1", "a-2"}
    assert store.keys(JOBS, "a%") == {"a%-1"}
    assert store.keys(JOBS, "a/") == {"a/b"}
    assert store.keys(JOBS, "a_") == frozenset()
    assert store.keys(JOBS) == set(names)
    assert store.get(JOBS, "a/b").key == "a/b"


# Concurrency


def test_threads_share_one_store(store):
    store.create(JOBS, "a-1", job(message="0"))

    def count(number: int) -> None:
        for index in range(5):
            change(store, JOBS, "a-1", lambda r: msgspec.structs.replace(r, message=str(int(r.message) + 1)))
            store.create(JOBS, f"t-{number}-{index}", job(f"t-{number}-{index}"))
            assert store.list(JOBS, limit=3).entries

    with ThreadPoolExecutor(4) as threads:
        list(threads.map(count, range(4)))
    assert store.get(JOBS, "a-1").value.message == "20"
    assert len(store.keys(JOBS, "t-")) == 20


def test_processes_open_a_new_store_at_once(home):
    for index in range(5):
        home.process(f"a-{index}", "store.create(JOBS, name, job(name))")
    home.finish()
    assert home.open().keys(JOBS) == {f"a-{index}" for index in range(5)}


def test_processes_change_one_document_and_no_change_is_lost(home, store):
    store.create(JOBS, "shared", job("shared"))
    for index in range(4):
        home.process(
            f"p{index}", "for i in range(15): change(store, JOBS, 'shared', count, note=f'{name} {i}', at=1.0)"
        )
    home.finish()
    entry = store.get(JOBS, "shared")
    assert (entry.value.message, entry.revision) == ("60", 61)
    notes = texts(store, "shared")
    assert len(notes) == 60
    for index in range(4):
        assert [text for text in notes if text.startswith(f"p{index} ")] == [f"p{index} {i}" for i in range(15)]


def test_processes_create_the_same_key_and_one_wins(home):
    home.open()
    script = (
        "\ntry:\n    store.create(JOBS, 'same', job('same'))\n    print('won')\nexcept Conflict:\n    print('lost')"
    )
    for index in range(4):
        home.process(f"p{index}", script)
    assert sorted(output.strip() for output in home.finish()) == ["lost"] * 3 + ["won"]


def test_process_killed_while_it_writes_leaves_no_half(home, store):
    script = (
        "entry = store.create(JOBS, name, job(name))\n"
        "while True:\n"
        "    entry = store.put(JOBS, entry, count(entry.value), events=[Event(1.0, 'n')] * 3)\n"
        "    if entry.revision == 5: print('ready', flush=True)"
    )
    for index in range(3):
        process = home.process(f"k-{index}", script, ready=True)
        process.send_signal(signal.SIGKILL)
        process.wait(timeout=PATIENCE)
        entry = store.get(JOBS, f"k-{index}")
        assert entry.revision >= 5
        assert entry.value.message == str(entry.revision - 1)
        assert len(texts(store, f"k-{index}")) == 3 * (entry.revision - 1)


def test_watch_wakes_after_a_change_by_somebody_else_until_it_is_ended(store, home):
    other = home.open()
    other.create(OLD, "x", Old("on", 1.0))
    woken = threading.Event()
    calls = []

    def wake() -> None:
        calls.append(1)
        woken.set()
        raise ZeroDivisionError  # a failing callback does not prevent later calls

    end = store.watch(JOBS, wake)
    for index in range(3):
        woken.clear()
        # A listener may take a while to start; its first report includes earlier changes.
        other.create(JOBS, f"a-{index}", job(f"a-{index}"))
        until(woken.is_set, "a change to be seen")
    end()
    seen = len(calls)
    other.create(JOBS, "b", job("b"))
    end()
    assert len(calls) == seen


def test_close_then_open_gives_everything_back(home):
    first = home.open()
    first.create(JOBS, "a-1", job())
    first.watch(JOBS, lambda: None)
    first.close()
    home.opened.remove(first)
    assert home.open().keys(JOBS) == {"a-1"}
