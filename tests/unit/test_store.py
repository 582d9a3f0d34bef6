"""The store's SQLite file: versions, damage, and disks that are full or may not be written."""

from __future__ import annotations

import json
import sqlite3
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cramped import on_small_disk
from tpukit.errors import Conflict, Transient
from tpukit.reasons import Reason, State
from tpukit.store import Attempt, Job
from tpukit.store.sqlite import MIGRATIONS, SqliteStore, open_store

attempts = st.builds(
    Attempt,
    number=st.integers(0, 99),
    stage=st.integers(0, 99),
    origin=st.integers(0, 99),
    state=st.sampled_from(State),
    asked=st.booleans(),
    started=st.floats(0, 1e10),
    ended=st.floats(0, 1e10),
    saved=st.integers(-1, 10**9),
    stopping=st.none() | st.sampled_from(Reason),
    reason=st.none() | st.sampled_from(Reason),
    host=st.text(),
    detail=st.text(),
)
plans = st.dictionaries(st.text(), st.none() | st.booleans() | st.integers() | st.text() | st.lists(st.text()))
jobs = st.builds(
    Job,
    id=st.text(min_size=1),
    place=st.sampled_from(["local", "gke", "tpu-vm"]),
    team=st.text(),
    owner=st.text(),
    created=st.floats(0, 1e10),
    plan=plans,
    tags=st.lists(st.text()).map(tuple),
    state=st.sampled_from(State),
    reason=st.none() | st.sampled_from(Reason),
    message=st.text(),
    ended=st.floats(0, 1e10),
    wanted=st.sampled_from(["run", "stop", "resume", "rerun"]),
    attempts=st.lists(attempts).map(tuple),
)


@given(jobs)
def test_job_through_json_and_back_is_the_same(job):
    assert Job.from_json(json.loads(json.dumps(job.to_json()))) == job


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "store.db"


def job(name: str = "a-1") -> Job:
    return Job(name, "local", "team", "me", 1.0, plan={})


def test_open_empty_file_becomes_a_store(path):
    path.touch()
    store = SqliteStore(path)
    store.add(job())
    assert store.get("a-1") == job()
    store.close()


def test_open_folder_that_is_not_there_is_made_for_its_owner_alone(tmp_path):
    open_store(tmp_path / "a" / "b").close()
    assert (tmp_path / "a" / "b").stat().st_mode & 0o077 == 0


def test_open_file_of_this_version_is_not_touched(path):
    first = SqliteStore(path)
    first.add(job())
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


def test_open_file_of_an_older_version_is_brought_up_with_its_data(path, monkeypatch):
    old = SqliteStore(path)
    old.add(job())
    old.close()
    newer = (*MIGRATIONS, "CREATE TABLE extra (id TEXT) STRICT; INSERT INTO extra SELECT id FROM jobs")
    monkeypatch.setattr("tpukit.store.sqlite.MIGRATIONS", newer)
    store = SqliteStore(path)
    assert store.get("a-1") == job()
    store.close()
    with sqlite3.connect(path) as db:
        assert db.execute("SELECT id FROM extra").fetchall() == [("a-1",)]
        assert db.execute("PRAGMA user_version").fetchone() == (len(newer),)
    db.close()


def test_open_migration_that_fails_leaves_the_old_version(path, monkeypatch):
    SqliteStore(path).close()
    monkeypatch.setattr("tpukit.store.sqlite.MIGRATIONS", (*MIGRATIONS, "CREATE TABLE extra (id); SELECT nonsense"))
    with pytest.raises(Transient):
        SqliteStore(path)
    monkeypatch.undo()
    store = SqliteStore(path)
    store.add(job())
    store.close()


@pytest.mark.parametrize("content", [b"hello, I am no database\n" * 200, b"SQLite format 3\0" + b"\xff" * 5000])
def test_open_file_that_is_no_store_says_so_at_once(path, content):
    path.write_bytes(content)
    before = time.monotonic()
    with pytest.raises(Conflict, match="damaged") as error:
        SqliteStore(path)
    assert str(path) in str(error.value)
    assert "backup" in error.value.hint
    assert time.monotonic() - before < 5
    assert path.read_bytes() == content


def test_read_of_a_page_that_was_damaged_says_so(path):
    store = SqliteStore(path)
    for index in range(50):
        store.add(job(f"a-{index}"))
    store.close()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(b"\xff" * (path.stat().st_size - 4096))
    store = SqliteStore(path)
    with pytest.raises(Conflict, match="damaged"):
        store.jobs()
    store.close()


def test_hold_where_no_lock_can_be_made_says_so(path):
    store = SqliteStore(path)
    (path.parent / "locks").rmdir()
    with pytest.raises(Transient, match="could not be read or written"), store.hold("a-1"):
        pass
    store.close()


SCRIPT = """
import json, os, subprocess, sys, time
from pathlib import Path
from tpukit.errors import TpukitError
from tpukit.store import Job
from tpukit.store.sqlite import open_store
folder = Path(sys.argv[1])
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
store.add(job("kept"))
filler = folder / "filler"
with filler.open("wb", buffering=0) as file:
    try:
        while file.write(b"x" * 512): pass
    except OSError:
        pass
results = [kind_of(lambda: store.add(job(f"new-{size}", size))) for size in (100, 100_000, 400_000)]
reopened = kind_of(lambda: open_store(folder).get("kept"))
filler.unlink()
store.add(job("later", 10_000))
ids = sorted(found.id for found in store.jobs())
print(json.dumps({"results": results, "reopened": reopened, "ids": ids}))
"""
)
READ_ONLY = (
    SCRIPT
    + """
store = open_store(folder)
store.add(job("kept"))
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
    written = [f"new-{size}" for size, kind in zip((100, 100_000, 400_000), kinds, strict=True) if not kind]
    assert done["ids"] == sorted(["kept", "later", *written])
    assert max(seconds for _, _, seconds in [*done["results"], done["reopened"]]) < 5


def test_disk_read_only_is_refused_at_once_with_a_way_out(tmp_path):
    done = on_small_disk(tmp_path / "disk", 512, READ_ONLY)
    for kind, text, seconds in (done["open"], done["new"]):
        assert kind == "Denied"
        assert "$TPUKIT_HOME" in text
        assert seconds < 5
