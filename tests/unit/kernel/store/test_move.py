"""`tpu store`: its output, and jobs that move from one home to another."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner, Result

from support.simulated_firestore import firestore
from support.waiting import until
from tpukit.cli import context
from tpukit.cli.store import command
from tpukit.core.errors import Conflict, Invalid
from tpukit.fleet.records import WORKERS, Worker
from tpukit.jobs.reasons import State
from tpukit.jobs.records import ACTIVE, JOBS, Attempt, Job
from tpukit.kernel.store import Event, Holder, Kind, change, everything, mark
from tpukit.kernel.store.home import open_store
from tpukit.kernel.store.move import move
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.sharing import inventory, tpu_aliases, users, windows
from tpukit.sharing.collections import KINDS

__all__ = ["firestore"]


class Newer(Job, frozen=True):
    colour: str = ""


NEWER: Kind[Newer] = Kind("jobs", Newer, state="state", order="created", upgrades=(dict,))


def job(name: str, created: float = 1.0, state: State = State.PENDING) -> Job:
    return Job(name, "local", "team", "me", created, plan={}, state=state)


@pytest.fixture
def homes(tmp_path: Path) -> Iterator[tuple[SqliteStore, SqliteStore]]:
    pair = SqliteStore(tmp_path / "old.db"), SqliteStore(tmp_path / "new.db")
    yield pair
    for store in pair:
        store.close()


def test_move_copies_jobs_with_events_and_unknown_fields_once(homes):
    old, new = homes
    old.create(JOBS, "a", job("a"), events=[Event(1.0, "sent"), Event(2.0, "began")])
    old.create(NEWER, "b", Newer("b", "local", "t", "me", 2.0, {}, colour="red"))
    assert move(old, new, JOBS).copied == ["a", "b"]
    assert new.events(JOBS, "a") == old.events(JOBS, "a")
    assert new.get(NEWER, "b").value.colour == "red"
    again = move(old, new, JOBS)
    assert (again.copied, again.present) == ([], ["a", "b"])
    assert len(new.events(JOBS, "a")) == 2


def test_move_leaves_what_differs_and_what_cannot_be_read(homes):
    old, new = homes
    for name in ("a", "b"):
        old.create(JOBS, name, job(name))
    move(old, new, JOBS)
    there = new.get(JOBS, "a")
    new.put(JOBS, there, msgspec.structs.replace(there.value, message="went on"))

    class Strange(msgspec.Struct):
        state: str = "x"
        created: float = 5.0

    old.create(Kind("jobs", Strange, state="state", order="created"), "c", Strange())
    done = move(old, new, JOBS, delete=True)
    assert (done.different, done.present, [broken.key for broken in done.broken]) == (["a"], ["b"], ["c"])
    assert old.keys(JOBS) == {"a", "c"}
    assert new.get(JOBS, "a").value.message == "went on"


def test_move_that_was_cut_short_goes_on(homes, monkeypatch):
    old, new = homes
    for name in ("a", "b", "c"):
        old.create(JOBS, name, job(name), events=[Event(1.0, "sent")])
    create, left = new.create, iter([1, 1])

    def failing(*args, **options):
        next(left)
        return create(*args, **options)

    monkeypatch.setattr(new, "create", failing)
    with pytest.raises(StopIteration):
        move(old, new, JOBS)
    monkeypatch.undo()
    done = move(old, new, JOBS)
    assert (done.present, done.copied) == (["a", "b"], ["c"])


@pytest.fixture
def tpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TPUKIT_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("TPUKIT_SETTINGS", str(tmp_path / "settings.yaml"))
    monkeypatch.delenv("TPUKIT_STORE", raising=False)

    def run(*arguments: str) -> Result:
        return CliRunner().invoke(command, arguments)

    return run


@pytest.fixture
def store(tpu, tmp_path: Path) -> Iterator[SqliteStore]:
    made = SqliteStore(tmp_path / "home" / "state" / "store.db")
    yield made
    made.close()


def test_show_says_what_is_in_it_and_who_works_on_it(tpu, store):
    store.create(JOBS, "a", job("a"))
    store.create(JOBS, "b", job("b", state=State.COMPLETED))
    store.acquire("jobs/a", Holder("me@there/1"), 60)
    with store._file.transaction() as db:
        db.execute("INSERT INTO documents VALUES (9, 'jobs', 'c', 1, 'pending', 3, 'no JSON')")
    summary = json.loads(tpu("show", "--json").stdout)
    assert (summary["store"], summary["jobs"]) == ("sqlite", {"active": 1, "ended": 1})
    assert [(lease["name"], lease["holder"]) for lease in summary["leases"]] == [("jobs/a", "me@there/1")]
    assert [broken["key"] for broken in summary["unreadable"]] == ["c"]
    for arguments in ((), ("show",)):
        done = tpu(*arguments)
        for text in ("1 active, 1 ended", "jobs/a  me@there/1", "c  it is not JSON"):
            assert text in done.output


def test_move_to_where_the_jobs_are_is_refused(tpu, store):
    assert isinstance(tpu("move", "sqlite").exception, Invalid)
    assert isinstance(tpu("move", "elsewhere").exception, Invalid)


def test_move_while_somebody_drives_active_jobs_is_refused(tpu, store, monkeypatch):
    other = SqliteStore(store.path.with_name("other.db"))
    other.address = "firestore://my-project-1"
    monkeypatch.setattr("tpukit.kernel.store.firestore.FirestoreStore", lambda *_: other)
    store.create(JOBS, "a", job("a"))
    lease = store.acquire("jobs/a", Holder("me@there/1"), 60)
    refused = tpu("move", other.address)
    assert isinstance(refused.exception, Conflict)
    assert "driven by me@there/1" in str(refused.exception)
    assert store.keys(JOBS) == {"a"}
    store.release(lease)
    other = SqliteStore(store.path.with_name("other.db"))
    other.address = "firestore://my-project-1"
    done = tpu("move", other.address, "--delete")
    assert done.exit_code == 0, done.output
    assert done.stdout == "store: firestore://my-project-1\n"
    assert "1 job copied from sqlite to firestore://my-project-1" in done.stderr
    assert not store.keys(JOBS)


def test_move_takes_what_the_job_manager_remembers_with_its_events(tmp_path):
    source, target = SqliteStore(tmp_path / "a.db"), SqliteStore(tmp_path / "b.db")
    users.add(source, "ada", (), 1.0)
    users.set_directory(source, "ada", 1, "/code", 2.0)
    windows.make(source, "ada", "job-1", 3.0)
    inventory.register(source, inventory.Vm("g-v4-8-1", "us-central2-b", "v4-8", 1.0), 4.0)
    tpu_aliases.add(source, "mine", "g-v4-8-1", (), 5.0)
    for kind in KINDS:
        move(source, target, kind)
    assert users.get(target, "ada") == users.get(source, "ada")
    assert target.events(users.USERS, "ada") == source.events(users.USERS, "ada")
    assert windows.get(target, "ada:1").job == "job-1"
    assert inventory.get(target, "g-v4-8-1") and tpu_aliases.listed(target) == {"mine": "g-v4-8-1"}
    source.close()
    target.close()


@pytest.fixture
def shared(tpu, store, firestore, tmp_path):
    """Yield the address of an empty database, and a function that points the settings at a home."""

    def close() -> None:
        if context.store.cache_info().currsize:
            context.store().close()
        context.store.cache_clear()

    def use(address: str) -> None:
        close()
        (tmp_path / "settings.yaml").write_text(f"store: {address}\n")

    close()
    yield "firestore://simulated-1", use
    close()


def test_move_with_an_active_job_keeps_the_mark_of_its_hardware_and_closes_the_old_home(tpu, store, shared):
    address, use = shared
    held = Attempt(0, 0, 0, State.RUNNING)
    for place in ("gke", "tpu-vm"):
        active = Job(f"on-{place}", place, "t", "me", 1.0, {}, state=State.RUNNING, attempts=(held,))
        store.create(JOBS, active.id, active)
    store.create(WORKERS, "w", Worker("f", ["us-central2-b"], 0, "v4-8", 1.0))
    before = context.sender()
    driver = store.acquire("jobs/on-gke", Holder("paused@there/1"), 0.01)  # a driver that is suspended
    until(lambda: store.lease("jobs/on-gke") is None, "its lease to lapse")
    assert tpu("move", address).exit_code == 0
    entry = store.get(JOBS, "on-gke")
    for act in (
        lambda: store.acquire("jobs/on-gke", Holder("paused@there/1"), 60),
        lambda: store.renew(driver, 60),
        lambda: store.put(JOBS, entry, entry.value, lease=driver),
        lambda: store.put(JOBS, entry, entry.value),
        lambda: store.create(JOBS, "new", job("new")),
        lambda: open_store("sqlite", store.path.parent),
    ):
        with pytest.raises(Conflict):
            act()
    with pytest.raises(Conflict, match=f"was moved to {address}") as error:
        open_store("sqlite", store.path.parent)
    assert f"`tpu settings store {address}`" in error.value.hint
    assert json.loads(tpu("show", "--json").stdout)["moved_to"] == address
    use(address)
    assert context.sender() == before
    assert {entry.key for entry in everything(context.store(), JOBS, states=ACTIVE)} == {"on-gke", "on-tpu-vm"}
    assert context.store().keys(WORKERS) == {"w"}
    assert tpu("move", "sqlite").exit_code == 0  # and back: changes made meanwhile are kept
    assert store.acquire("jobs/on-gke", Holder("b"), 60)


def test_move_back_brings_what_happened_meanwhile(tpu, store, shared):
    address, use = shared
    store.create(JOBS, "a", job("a"))
    assert tpu("move", address).exit_code == 0
    use(address)
    change(context.store(), JOBS, "a", lambda one: msgspec.structs.replace(one, message="went on"), note="n")
    assert tpu("move", "sqlite").exit_code == 0
    assert store.get(JOBS, "a").value.message == "went on"
    use("sqlite")
    context.sender()
    change(context.store(), JOBS, "a", lambda one: msgspec.structs.replace(one, message="further"))
    use(address)
    again = tpu("move", "sqlite")  # leftovers replace nothing a second time
    assert isinstance(again.exception, Conflict)
    assert store.get(JOBS, "a").value.message == "further"


def test_move_of_active_jobs_into_a_store_with_hardware_of_its_own_is_refused(tpu, store, shared):
    address, _ = shared
    open_store(address, store.path.parent).create(JOBS, "theirs", job("theirs"))
    store.create(JOBS, "a", job("a"))
    refused = tpu("move", address)
    assert isinstance(refused.exception, Conflict)
    assert "marks the hardware of its own jobs differently" in str(refused.exception)
    assert store.acquire("jobs/a", Holder("a"), 60)  # nothing was closed


def test_move_while_a_job_cannot_be_read_is_refused(tpu, store, shared):
    address, _ = shared
    store.create(JOBS, "a", job("a"))
    with store._file.transaction() as db:
        db.execute("UPDATE documents SET state = 'thawing', doc = replace(doc, 'pending', 'thawing')")
    refused = tpu("move", address)
    assert isinstance(refused.exception, Conflict)
    assert "upgrade tpukit" in str(refused.exception)


def test_lease_that_is_acquired_in_the_moment_in_which_the_database_is_left_is_refused(firestore, tmp_path):
    source, target = open_store("firestore://simulated-1", tmp_path), SqliteStore(tmp_path / "new.db")

    def leave(call: str) -> None:
        if call == "commit":  # the lease was read but is not written yet
            firestore.before = lambda call: None
            mark.begin_move(source, target, ("own", "theirs"), active=True, at=1.0)

    firestore.before = leave
    with pytest.raises(Conflict, match="was moved to"):
        source.acquire("jobs/a", Holder("me@there/1"), 60)
    assert not source.leases()
    source.close()
    target.close()
