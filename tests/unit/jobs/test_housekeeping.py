"""Cleanup: what is deleted, in which order, and that an interrupted removal is finished by the next run."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import sqlite3
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tpukit.jobs import housekeeping
from tpukit.jobs import snapshots as stage
from tpukit.jobs.housekeeping import Item, JobFacts, Limits, What, decide
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store.sqlite import SqliteStore

DAY = 86400.0
NOW = 1_700_000_000.0
LIMITS = Limits(age=30 * DAY, runs=1000, code=300)


@st.composite
def things(draw):
    count = draw(st.integers(0, 12))
    return [
        Item(
            draw(st.sampled_from(What)),
            f"job-{number}",
            Path(f"/data/{number}"),
            draw(st.integers(0, 600)),
            NOW - draw(st.floats(-1, 60)) * DAY,
            draw(st.booleans()),
            draw(st.booleans()),
        )
        for number in range(count)
    ]


def total(items, *kinds):
    return sum(item.bytes for item in items if item.what in kinds)


@given(things())
def test_decide_never_removes_what_is_needed_and_nothing_twice(items):
    gone = [removal.item for removal in decide(items, NOW, LIMITS)]
    assert not any(item.needed for item in gone)
    assert len(gone) == len({item.path for item in gone})
    assert all(removal.reason for removal in decide(items, NOW, LIMITS))


@given(things())
def test_decide_removes_all_that_is_old_and_of_the_rest_only_what_is_beyond_the_limits(items):
    gone = {removal.item for removal in decide(items, NOW, LIMITS)}
    for item in items:
        age = NOW - item.used
        if item.what in (What.TRASH, What.TEMPORARY):
            old = item.what is What.TRASH or age > LIMITS.temporary
            assert (item in gone) == (old and not item.needed)
        elif age > LIMITS.age:
            assert (item in gone) == (not item.needed)
        elif item in gone:
            assert item.what is not What.LOCK
            assert item.known, "a job of another store goes by age alone"
            assert age > LIMITS.fresh


@given(things())
def test_decide_keeps_to_the_sizes_and_takes_no_more_than_it_has_to(items):
    removals = decide(items, NOW, LIMITS)
    gone = {removal.item for removal in removals}
    for kinds, most in (((What.RUN, What.CHECKPOINTS), LIMITS.runs), ((What.CODE,), LIMITS.code)):
        left = [item for item in items if item not in gone]
        could_go = [
            item
            for item in left
            if item.what in kinds and item.known and not item.needed and item.bytes and NOW - item.used > LIMITS.fresh
        ]
        assert total(left, *kinds) <= most or not could_go
        by_size = [one.item for one in removals if one.item.what in kinds and "more" in one.reason]
        if by_size:
            assert total([*left, by_size[-1]], *kinds) > most
            assert [item.used for item in by_size] == sorted(item.used for item in by_size)
            assert all(item.used >= by_size[-1].used for item in could_go), "the oldest go first"


# Files


def write(path: Path, text: str = "x") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def aged(path: Path, days: float) -> Path:
    """Set the modification time of all of a folder to this many days ago."""
    for top, folders, files in os.walk(path, topdown=False):
        for name in (*folders, *files):
            os.utime(Path(top, name), (NOW - days * DAY,) * 2, follow_symlinks=False)
    os.utime(path, (NOW - days * DAY,) * 2)
    return path


def make_run(data: Path, name: str, days: float) -> Path:
    folder = data / "runs" / name
    write(folder / "attempt-0" / f"{name}-slice-0-0" / "log", "said\n" * 100)
    write(folder / "code" / "train.py")
    write(folder / "work" / "checkpoints" / "7" / "data")
    return aged(folder, days)


@pytest.fixture
def data(tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    for name in ("active", "ended-old", "ended-new", "unknown-old", "unknown-new"):
        make_run(folder, name, 1 if name.endswith("new") else 50)
        write(folder / "tensorboard" / name / "events")
        aged(folder / "tensorboard" / name, 50)
    for name, days in {"a": 50, "e": 50, "n": 50, "u": 50, "f": 1}.items():
        write(folder / "code" / (name * 64) / "train.py")
        aged(folder / "code" / (name * 64), days)
    write(folder / "sender")
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "state"
    for name in ("active", "ended-old", "ended-new"):
        aged(write(folder / "locks" / name), 50)
    write(folder / "store.db")
    return folder


KNOWN = {
    "active": JobFacts(active=True, digest="a" * 64),
    "ended-old": JobFacts(active=False, ended=NOW - 50 * DAY, digest="e" * 64),
    "ended-new": JobFacts(active=False, ended=NOW - DAY, digest="n" * 64),
}


def clean(data, state, known=KNOWN, limits=None, **options):
    return housekeeping.run(data, state, known, NOW, limits or Limits(), **options)


def tree(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if not path.is_dir()}


def test_run_removes_what_is_old_and_leaves_checkpoints_and_what_is_needed(data, state):
    before = tree(data)
    report = clean(data, state)
    assert {(removal.item.what, removal.item.name[:11]) for removal in report.removed} == {
        (What.RUN, "ended-old"),
        (What.RUN, "unknown-old"),
        (What.CODE, "e" * 11),
        (What.CODE, "u" * 11),
        (What.LOCK, "ended-old"),
    }
    assert report.failed == ()
    assert report.freed > 0
    gone = before - tree(data)
    assert {name.rpartition("/")[0] for name in gone} == {
        "runs/ended-old/attempt-0/ended-old-slice-0-0",
        "runs/ended-old/code",
        "runs/unknown-old/attempt-0/unknown-old-slice-0-0",
        "runs/unknown-old/code",
        f"code/{'e' * 64}",
        f"code/{'u' * 64}",
    }
    assert tree(data) < before
    assert tree(state) == {"locks/active", "locks/ended-new", "store.db"}
    assert clean(data, state).removed == ()


def test_run_with_checkpoints_removes_them_of_old_ended_jobs_too(data, state):
    clean(data, state, checkpoints=True)
    assert {path.name for path in (data / "runs").iterdir()} == {"active", "ended-new", "unknown-new"}
    # Data is kept for 30 days after its job ends, and this job ended a day ago.
    assert {path.name for path in (data / "tensorboard").iterdir()} == {"active", "ended-new"}


def test_run_dry_says_the_same_and_removes_nothing(data, state):
    before = tree(data) | tree(state)
    said = clean(data, state, dry_run=True)
    assert tree(data) | tree(state) == before
    assert clean(data, state).removed == said.removed


def test_run_over_the_size_removes_ended_jobs_and_never_active_unknown_or_fresh_ones(data, state):
    known = {**KNOWN, "fresh": JobFacts(active=False, ended=NOW - 60)}
    make_run(data, "fresh", 1)
    report = clean(data, state, known, Limits(runs=0, code=0))
    assert {removal.item.name for removal in report.removed if removal.item.what is What.RUN} == {
        "ended-old",
        "unknown-old",
        "ended-new",
    }
    assert {path.name[0] for path in (data / "code").iterdir()} == {"a", "f"}


def test_run_a_record_that_cannot_be_read_keeps_its_files_and_all_code(data, state):
    known = {**KNOWN, "unknown-old": JobFacts(active=True, readable=False)}
    report = clean(data, state, known, Limits(code=0))
    assert {removal.item.name for removal in report.removed} == {"ended-old"}


def test_run_a_job_resumed_meanwhile_is_left_alone(data, state):
    report = clean(data, state, active=lambda job_id: job_id == "ended-old")
    assert "ended-old" not in {removal.item.name for removal in report.removed}
    assert (data / "runs" / "ended-old" / "attempt-0").exists()


def test_run_code_staged_again_meanwhile_is_left_alone(data, state):
    (item,) = [one for one in housekeeping.scan(data, state, KNOWN) if one.name == "e" * 64]
    stage.require(data / "code", "e" * 64)
    assert not housekeeping.remove(item)
    assert (data / "code" / ("e" * 64) / "train.py").exists()


def test_run_lock_that_is_held_is_left_alone(data, state):
    with (state / "locks" / "ended-old").open() as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        report = clean(data, state)
    assert What.LOCK not in {removal.item.what for removal in report.removed}
    assert (state / "locks" / "ended-old").exists()


@pytest.mark.parametrize("calls", range(12))
def test_run_killed_at_any_moment_is_finished_the_next_time_and_shows_no_half(data, state, monkeypatch, calls):
    """A folder under its own name has all its files."""
    reference = {path: tree(path) for path in [*(data / "code").iterdir(), *(data / "runs").glob("*/attempt-0")]}
    expected_data, expected_state = data.parent / "copy" / "data", data.parent / "copy" / "state"
    shutil.copytree(data, expected_data)
    shutil.copytree(state, expected_state)
    clean(expected_data, expected_state)
    left, unlink, rename, rmtree = iter(range(calls)), os.unlink, Path.rename, shutil.rmtree

    def dying(function):
        def call(*arguments, **options):
            if next(left, None) is None:
                raise KeyboardInterrupt
            return function(*arguments, **options)

        return call

    with monkeypatch.context() as patch:
        patch.setattr(os, "unlink", dying(unlink))
        patch.setattr(Path, "rename", dying(rename))
        patch.setattr(shutil, "rmtree", dying(rmtree))
        with contextlib.suppress(KeyboardInterrupt):
            clean(data, state)
    for path, files in reference.items():
        assert not path.exists() or tree(path) == files
    clean(data, state)
    clean(data, state)  # trash next to its original
    assert tree(data) == tree(expected_data)
    assert tree(state) == tree(expected_state)


def test_run_leftovers_of_killed_processes_go_when_nobody_can_be_at_them_any_more(data, state):
    stale = [data / "code" / ".new-old", data / "runs" / "active" / ".code-old"]
    fresh = [data / "code" / ".new-new", data / "runs" / "active" / ".code-new"]
    for folder in [*stale, *fresh]:
        write(folder / "x")
        aged(folder, 2 if folder in stale else 0.1)
    os.utime(write(data / "sender.1234"), (NOW - 2 * DAY,) * 2)
    clean(data, state)
    assert not any(path.exists() for path in [*stale, data / "sender.1234"])
    assert all(path.exists() for path in fresh)
    assert (data / "sender").exists()


def test_run_links_are_somebodys_own_arrangement(data, state, tmp_path):
    elsewhere = tmp_path / "big-disk"
    make_run(elsewhere, "ended-old", 50)
    shutil.rmtree(data / "runs" / "ended-old")
    (data / "runs" / "ended-old").symlink_to(elsewhere / "runs" / "ended-old")
    before = tree(elsewhere)
    clean(data, state, checkpoints=True)
    assert tree(elsewhere) == before
    assert (data / "runs" / "ended-old").is_symlink()


def test_run_one_that_cannot_be_removed_is_said_and_the_rest_goes(data, state, monkeypatch):
    rename = Path.rename

    def refusing(path, target):
        if path.name == "e" * 64:
            raise PermissionError(13, "Permission denied")
        return rename(path, target)

    monkeypatch.setattr(Path, "rename", refusing)
    report = clean(data, state)
    ((removal, why),) = report.failed
    assert (removal.item.name, why) == ("e" * 64, "Permission denied")
    assert not (data / "code" / ("u" * 64)).exists()


def test_run_where_nothing_ever_ran_removes_nothing(tmp_path):
    assert clean(tmp_path / "data", tmp_path / "state", {}) == housekeeping.Report()


def test_known_jobs_are_those_of_the_store_and_unreadable_records_count_as_active(tmp_path):
    store = SqliteStore(tmp_path / "store.db")

    def job(job_id: str, state: State, ended: float = 0.0, snapshot: object = None) -> None:
        plan = {"snapshot": snapshot} if snapshot != "no plan" else {}
        store.create(JOBS, job_id, Job(job_id, "local", "t", "me", NOW, plan, state=state, ended=ended))

    job("a", State.RUNNING, snapshot={"digest": "d1"})
    job("b", State.COMPLETED, ended=7.0, snapshot={"digest": "d2"})
    job("c", State.FAILED, ended=8.0)
    job("d", State.CANCELLED, ended=9.0, snapshot="no plan")
    job("e", State.COMPLETED)
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as db, db:
        damaged = db.execute("UPDATE documents SET doc = '{}' WHERE key = 'e'").rowcount
    assert damaged == 1
    assert housekeeping.known_jobs(store) == {
        "a": JobFacts(active=True, digest="d1"),
        "b": JobFacts(active=False, ended=7.0, digest="d2"),
        "c": JobFacts(active=False, ended=8.0),
        "d": JobFacts(active=False, ended=9.0),
        "e": JobFacts(active=True, readable=False),
    }
    store.close()


def test_run_a_record_that_became_unreadable_meanwhile_keeps_its_files(tmp_path, data, state):
    """Another machine with a newer version resumes the job between the scan and the removal."""
    store = SqliteStore(tmp_path / "store.db")
    store.create(JOBS, "ended-old", Job("ended-old", "local", "t", "me", NOW, {}, state=State.COMPLETED))
    with contextlib.closing(sqlite3.connect(tmp_path / "store.db")) as db, db:
        db.execute("UPDATE documents SET state = 'thawing', doc = replace(doc, 'completed', 'thawing')")
    report = clean(data, state, active=housekeeping.active_in(store))
    assert "ended-old" not in {removal.item.name for removal in report.removed}
    assert (data / "runs" / "ended-old" / "attempt-0").exists()
    store.close()
