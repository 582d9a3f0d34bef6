"""The store's SQLite file: versions, damage, full and read-only disks, clocks, and many jobs."""

from __future__ import annotations

import json
import sqlite3
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from support.cramped import on_small_disk
from support.waiting import PATIENCE, until
from tpukit.code_queue.decide import Outcome, claimable, finish
from tpukit.code_queue.records import TPU_JOBS, QueuedJob
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, Invalid, Transient
from tpukit.jobs.controller.decide import Act, decide
from tpukit.jobs.reasons import Reason, State
from tpukit.jobs.records import ACTIVE, JOBS, Attempt, Job
from tpukit.jobs.spec import JobSpec
from tpukit.kernel.store import Event, Holder, codec
from tpukit.kernel.store.file import WAIT_SECONDS
from tpukit.kernel.store.home import open_store
from tpukit.kernel.store.migrations import MIGRATIONS
from tpukit.kernel.store.sqlite import SqliteStore
from tpukit.places.base import Observation


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def job(name: str = "a-1") -> Job:
    return Job(name, "local", "team", "me", 1.0, plan={})


def add(store: SqliteStore, name: str = "a-1") -> None:
    store.create(JOBS, name, job(name))


def test_open_empty_file_becomes_a_store(path):
    path.touch()
    store = SqliteStore(path)
    add(store)
    assert store.get(JOBS, "a-1").value == job()
    store.close()


def test_open_folder_that_is_not_there_is_made_for_its_owner_alone(tmp_path):
    open_store("", tmp_path / "a" / "b").close()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("setting", ["postgres", "firestore://", "firestore://my-project-1/a/b", "sqlite:///x"])
def test_open_home_that_there_is_none_of_says_what_to_write(tmp_path, setting):
    with pytest.raises(Invalid, match="write sqlite, or firestore://PROJECT"):
        open_store(setting, tmp_path)


def test_open_file_of_this_version_is_not_touched(path):
    first = SqliteStore(path)
    add(first)
    first.close()
    before = path.read_bytes()
    SqliteStore(path).close()
    assert path.read_bytes() == before


def test_open_file_of_a_newer_version_is_refused_and_left_alone(path):
    with sqlite3.connect(path) as db:
        db.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    db.close()
    with pytest.raises(Conflict, match=r"newer tpukit \(version \d+, this one knows \d+\)") as error:
        SqliteStore(path)
    assert "upgrade tpukit" in error.value.hint
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT count(*) FROM sqlite_master").fetchone() == (0,)
    db.close()


OLD_JOB = """{"id": "%s", "place": "gke", "team": "t", "owner": "me", "created": %s, "plan": {"spec": {"name": "a"}},
"tags": ["x"], "state": "%s", "reason": "host lost", "message": "m", "ended": 3.5, "wanted": "run", "attempts": [
{"number": 0, "stage": 0, "origin": 0, "state": "failed", "asked": false, "started": 1.5, "ended": 2.5, "saved": 7,
"stopping": null, "reason": "host lost", "host": "h0", "detail": "d"}]}"""


def test_open_file_of_the_first_version_has_its_jobs_and_events(path):
    """Create the file statement by statement as tpukit 0.1 did."""
    with sqlite3.connect(path) as db:
        for statement in MIGRATIONS[0].split(";"):
            db.execute(statement)
        db.execute("PRAGMA user_version = 1")
        for name, created, state in (("b-1", 2.0, "failed"), ("a-1", 1.0, "running")):
            doc = OLD_JOB % (name, created, state)
            db.execute("INSERT INTO jobs VALUES (?, ?, ?, ?)", (name, created, state == "running", doc))
        db.execute("INSERT INTO jobs VALUES ('c-1', 3.0, 1, 'no JSON')")
        notes = [("a-1", 1.0, "sent"), ("b-1", 2.0, "sent"), ("a-1", 3.0, "began")]
        db.executemany("INSERT INTO events (job, at, text) VALUES (?, ?, ?)", notes)
    db.close()
    store = SqliteStore(path)
    page = store.list(JOBS)
    assert [entry.key for entry in page.entries] == ["a-1", "b-1"]
    assert [broken.key for broken in page.broken] == ["c-1"]
    assert [entry.key for entry in store.list(JOBS, states=ACTIVE).entries] == ["a-1"]
    entry = store.get(JOBS, "a-1")
    attempt = Attempt(0, 0, 0, State.FAILED, False, 1.5, 2.5, 7, None, Reason.HOST_LOST, "h0", "d")
    fields = {"tags": ("x",), "state": State.RUNNING, "reason": Reason.HOST_LOST, "message": "m", "ended": 3.5}
    plan = {"spec": {"name": "a"}}
    assert entry.value == Job("a-1", "gke", "t", "me", 1.0, plan, attempts=(attempt,), **fields)
    assert store.events(JOBS, "a-1") == [Event(1.0, "sent"), Event(3.0, "began")]
    assert store.events(JOBS, "b-1", after=1) == []
    assert store.put(JOBS, entry, entry.value, events=[Event(4.0, "now")]).revision == 2
    assert [event.text for event in store.events(JOBS, "a-1")] == ["sent", "began", "now"]
    store.close()


def test_open_file_of_an_older_version_is_brought_up_with_its_data(path, monkeypatch):
    old = SqliteStore(path)
    add(old)
    old.close()
    newer = (*MIGRATIONS, "CREATE TABLE extra (id TEXT) STRICT; INSERT INTO extra SELECT key FROM documents")
    monkeypatch.setattr("tpukit.kernel.store.migrations.MIGRATIONS", newer)
    store = SqliteStore(path)
    assert store.get(JOBS, "a-1").value == job()
    store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT id FROM extra").fetchall() == [("a-1",)]
        assert db.execute("PRAGMA user_version").fetchone() == (len(newer),)
    db.close()


def test_open_migration_that_fails_leaves_the_old_version(path, monkeypatch):
    SqliteStore(path).close()
    broken = (*MIGRATIONS, "CREATE TABLE extra (id); SELECT nonsense")
    monkeypatch.setattr("tpukit.kernel.store.migrations.MIGRATIONS", broken)
    with pytest.raises(Transient):
        SqliteStore(path)
    monkeypatch.undo()
    store = SqliteStore(path)
    add(store)
    store.close()


@pytest.mark.parametrize("content", [b"hello, I am no database\n" * 200, b"SQLite format 3\0" + b"\xff" * 5000])
def test_open_file_that_is_no_store_says_so_at_once(path, content):
    path.write_bytes(content)
    before = time.monotonic()
    with pytest.raises(Conflict, match="damaged") as error:
        SqliteStore(path)
    assert str(path) in str(error.value)
    assert "backup" in error.value.hint
    assert time.monotonic() - before < WAIT_SECONDS, "nobody has it locked"
    assert path.read_bytes() == content


def test_read_of_a_page_that_was_damaged_says_so(path):
    store = SqliteStore(path)
    for index in range(50):
        add(store, f"a-{index}")
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    store = SqliteStore(path)
    with pytest.raises(Conflict, match="damaged"):
        store.list(JOBS)
    store.close()


def test_read_goes_on_and_write_waits_while_another_process_writes(path):
    store = SqliteStore(path)
    add(store)
    writer = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    writer.execute("BEGIN IMMEDIATE")
    writer.execute("UPDATE documents SET state = 'failed'")
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(store.put, JOBS, store.get(JOBS, "a-1"), job())
        assert store.get(JOBS, "a-1").value.state == State.PENDING
        assert len(store.list(JOBS, states=ACTIVE).entries) == 1
        assert not waiting.done()
        writer.execute("COMMIT")
        assert waiting.result(timeout=PATIENCE).revision == 2
    writer.close()
    store.close()


def test_threads_that_come_and_go_leave_no_connections(path):
    store = SqliteStore(path)
    for _ in range(50):
        thread = threading.Thread(target=store.keys, args=(JOBS,))
        thread.start()
        thread.join()
    assert len(store._file._idle) == 1
    store.close()
    with pytest.raises(Conflict, match="closed"):
        store.keys(JOBS)


def test_lease_goes_by_the_clock_it_was_given(path):
    clock = ManualClock()
    store = SqliteStore(path, clock.now)
    lease = store.acquire("x", Holder("a"), 30)
    clock.sleep(29)
    assert store.lease("x") == lease
    assert store.acquire("x", Holder("b"), 30) is None
    clock.sleep(1)
    assert store.lease("x") is None
    taken = store.acquire("x", Holder("b"), 30)
    assert taken.token > lease.token
    store.close()


@pytest.mark.parametrize("reads", [False, True])
def test_lease_lasts_no_longer_when_the_clock_is_set_back(path, reads):
    clock = ManualClock()
    store = SqliteStore(path, clock.now)
    lease = store.acquire("x", Holder("a"), 30)
    clock.sleep(-86_400)
    if reads:
        assert store.lease("x").ends == clock.now() + 30
    else:
        assert store.acquire("x", Holder("b"), 30) is None
    clock.sleep(31)
    assert store.lease("x") is None
    assert store.acquire("x", Holder("b"), 30).token > lease.token
    store.close()


def test_lease_can_be_renewed_and_used_after_the_clock_was_set_back(path):
    clock = ManualClock()
    store = SqliteStore(path, clock.now)
    add(store)
    lease = store.acquire("x", Holder("a"), 30)
    clock.sleep(-86_400)
    entry = store.put(JOBS, store.get(JOBS, "a-1"), job(), lease=lease)
    assert store.renew(lease, 30).ends == clock.now() + 30
    clock.sleep(29)
    assert store.put(JOBS, entry, job(), lease=lease).revision == 3
    store.close()


def test_watch_is_not_woken_by_leases(path):
    store, other = SqliteStore(path), SqliteStore(path)
    woken = []
    end = store.watch(JOBS, lambda: woken.append(1))
    for _ in range(3):
        other.renew(other.acquire("x", Holder("a"), 30), 30)
    add(other)
    until(lambda: woken, "the job to be seen")
    end()
    assert len(woken) == 1
    store.close()
    other.close()


def test_list_of_a_page_decodes_no_more_than_it_gives(path, monkeypatch):
    """The cost of a page depends on the page size, even with 10,000 jobs that are mostly ended."""
    store = SqliteStore(path)
    state = [State.COMPLETED, State.PENDING, State.RUNNING, State.FAILED]
    doc = codec.encode(JOBS, Job("x", "local", "t", "me", 0.0, plan={"filler": "x" * 2000}), {}, 1)
    rows = [
        ("jobs", f"j-{n}", 1, state[n % 4], float(n), json.dumps({**doc, "created": n, "state": state[n % 4]}))
        for n in range(10_000)
    ]
    with sqlite3.connect(path) as db:
        query = "INSERT INTO documents (collection, key, revision, state, sort, doc) VALUES (?, ?, ?, ?, ?, ?)"
        db.executemany(query, rows)
    db.close()
    decoded = []
    read = codec.read
    monkeypatch.setattr(codec, "read", lambda *args: decoded.append(1) or read(*args))
    active = store.list(JOBS, states=ACTIVE, limit=51)
    latest = store.list(JOBS, newest=True, limit=51)
    assert [entry.key for entry in active.entries][:4] == ["j-1", "j-2", "j-5", "j-6"]
    assert [entry.key for entry in latest.entries][:2] == ["j-9999", "j-9998"]
    assert len(decoded) == 102, "of all that are there few are read"
    with sqlite3.connect(path) as db:
        plan = str(db.execute(f"EXPLAIN QUERY PLAN {_PAGE}").fetchall())
    db.close()
    assert "documents_sort" in plan
    assert "TEMP B-TREE" not in plan
    store.close()


_PAGE = "SELECT doc FROM documents WHERE collection = 'jobs' AND (sort, key) < (5, 'a') ORDER BY sort DESC, key DESC"


SCRIPT = """
import json, os, subprocess, sys, time
from pathlib import Path
from tpukit.core.errors import TpukitError
from tpukit.jobs.records import JOBS; from tpukit.jobs.records import Job
from tpukit.kernel.store.home import open_store as open_home
folder = Path(sys.argv[1])
def open_store(folder): return open_home("", folder)
def add(store, job): store.create(JOBS, job.id, job)
def job(name, size=0): return Job(name, "local", "team", "me", 1.0, plan={"filler": "x" * size})
def read_only():
    if subprocess.run(["mount", "-o", "remount,ro", str(folder)], capture_output=True).returncode:
        for path in (folder, *folder.rglob("*")): path.chmod(0o500 if path.is_dir() else 0o400)
def kind_of(call):
    before = time.monotonic()
    try:
        call()
    except TpukitError as error:
        return [type(error).__name__, str(error), time.monotonic() - before]
    return ["", "", time.monotonic() - before]
"""
FULL = (
    SCRIPT
    + """
store = open_store(folder)
add(store, job("kept"))
filler = folder / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while file.write(b"x" * 512): pass
    except OSError:
        pass
results = [kind_of(lambda: add(store, job(f"new-{size}", size))) for size in (100, 100_000, 230_000)]
reopened = kind_of(lambda: open_store(folder).get(JOBS, "kept"))
filler.unlink()
add(store, job("later", 10_000))
ids = sorted(store.keys(JOBS))
print(json.dumps({"results": results, "reopened": reopened, "ids": ids}))
"""
)
READ_ONLY = (
    SCRIPT
    + """
store = open_store(folder)
add(store, job("kept"))
store.close()
read_only()
print(json.dumps({
    "open": kind_of(lambda: open_store(folder)),
    "new": kind_of(lambda: open_store(folder / "deeper")),
}))
"""
)


def test_disk_full_write_fails_with_a_sentence_and_goes_through_when_there_is_room(tmp_path):
    done = on_small_disk(tmp_path / "disk", 512, FULL)
    kinds = [kind for kind, _, _ in done["results"]]
    assert kinds[-1] == "Transient"
    assert set(kinds) <= {"", "Transient"}
    if done["full"]:
        assert "free some disk space" in done["results"][-1][1]
    stored = [f"new-{size}" for size, kind in zip((100, 100_000, 230_000), kinds, strict=True) if not kind]
    assert done["ids"] == sorted(["kept", "later", *stored])
    assert max(seconds for _, _, seconds in [*done["results"], done["reopened"]]) < WAIT_SECONDS


def test_disk_read_only_is_refused_at_once_with_a_way_out(tmp_path):
    done = on_small_disk(tmp_path / "disk", 512, READ_ONLY)
    for kind, text, seconds in (done["open"], done["new"]):
        assert kind == "Denied"
        assert "$TPUKIT_HOME" in text
        assert seconds < WAIT_SECONDS


def _after_power_loss(path: Path, frames_lost: int, to: Path) -> SqliteStore:
    """Copy the file as a disk may have it after a power loss: without the last frames of its log."""
    to.write_bytes(path.read_bytes())
    log = path.with_name(f"{path.name}-wal").read_bytes()
    page = int.from_bytes(path.read_bytes()[16:18], "big")
    frames = (len(log) - 32) // (page + 24)
    to.with_name(f"{to.name}-wal").write_bytes(log[: 32 + max(0, frames - frames_lost) * (page + 24)])
    return SqliteStore(to)


@pytest.mark.parametrize("frames", range(0, 12))
def test_power_loss_leaves_an_earlier_state_and_never_half_of_a_write(path, tmp_path, frames):
    store = SqliteStore(path)
    entry = store.create(JOBS, "a-1", job(), events=[Event(1.0, "0")])
    for number in range(1, 6):
        value = msgspec.structs.replace(entry.value, message=str(number))
        entry = store.put(JOBS, entry, value, events=[Event(1.0, str(number))])
    lost = _after_power_loss(path, frames, tmp_path / "after.db")
    keys = lost.keys(JOBS)
    if keys:
        read = lost.get(JOBS, "a-1")
        assert len(lost.events(JOBS, "a-1")) == read.revision
        assert read.value.message == (str(read.revision - 1) if read.revision > 1 else "")
    lost.close()
    store.close()


def test_power_loss_after_a_launch_repeats_the_same_attempt_which_its_place_takes_for_the_same(path, tmp_path):
    """The lost launch is repeated: an attempt is identified by its number and names, which come out equal."""
    spec = JobSpec.from_json({"name": "a", "tpu": "v4-16", "command": ["true"], "capacity": "spot"})
    store = SqliteStore(path)
    before = store.create(JOBS, "a-1", job())
    lost = SqliteStore(tmp_path / "lost.db")
    lost.create(JOBS, "a-1", job())  # on the disk, the launch is missing
    first, again = (decide(one.get(JOBS, "a-1").value, spec, None, 5.0) for one in (store, lost))
    assert (first.act, first.job) == (again.act, again.job)
    store.put(JOBS, before, first.job)
    store.close()
    lost.close()


def test_write_of_a_record_waits_for_the_disk_and_that_of_a_lease_or_of_the_queue_does_not(path, monkeypatch):
    store = SqliteStore(path)
    levels: list[int] = []
    begin = store._file.transaction

    @contextmanager
    def watched(**options):
        with begin(**options) as db:
            levels.append(db.execute("PRAGMA synchronous").fetchone()[0])
            yield db

    monkeypatch.setattr(store._file, "transaction", watched)
    normal, full = 1, 2
    entry = store.create(JOBS, "a-1", job())
    lease = store.acquire("jobs/a-1", Holder("me"), 60.0)
    store.put(JOBS, entry, entry.value, lease=lease)
    store.renew(lease, 60.0)
    store.create(TPU_JOBS, "q", QueuedJob(code="1"))
    assert levels == [full, normal, full, normal, normal]
    store.close()


def test_clock_a_day_ahead_and_then_right_blocks_no_lease_and_no_launch(path):
    clock = ManualClock()
    store = SqliteStore(path, now=clock.now)
    clock.suspend(86_400.0)
    store.acquire("jobs/a-1", Holder("ahead"), 45.0)
    ended = Attempt(0, 0, 0, State.FAILED, reason=Reason.NO_CAPACITY, ended=clock.now())
    clock.suspend(-86_400.0)
    assert store.lease("jobs/a-1") is not None
    clock.suspend(46.0)
    assert store.acquire("jobs/a-1", Holder("other"), 45.0)
    spec = JobSpec.from_json({"name": "a", "tpu": "v4-16", "command": ["true"], "capacity": "spot"})
    waits = msgspec.structs.replace(job(), attempts=(ended,))
    seen = Observation(State.FAILED, reason=Reason.NO_CAPACITY, active=False)
    assert decide(waits, spec, seen, clock.now()).act is Act.SUBMIT
    store.close()


def test_clock_a_day_ahead_and_then_right_does_not_keep_a_queued_job_for_a_day():
    now = ManualClock().now()
    queued = QueuedJob(code="1", created_at=now, updated_at=now, status="running")
    lost = finish("q", queued, Outcome(Reason.HOST_LOST), now + 86_400.0)
    assert not claimable(lost, now + 86_400.0)  # it waits for its delay
    assert claimable(lost, now)
    later = finish("q", msgspec.structs.replace(lost, status="running"), Outcome(Reason.HOST_LOST), now + 10.0)
    assert claimable(later, now + 400.0)
