"""`tpu clean`: freeing disk space on this machine."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path

import pytest

from tpukit.jobs import snapshots as stage
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS, Job
from tpukit.kernel.store.sqlite import SqliteStore

DAY = 86400.0


@pytest.fixture
def digests(tpu) -> dict[str, str]:
    """Create jobs in the store with files on this machine, and return the digests of their code."""
    now = time.time()
    store = SqliteStore(tpu.home / "state" / "store.db")
    data = tpu.home / "data"
    found = {}
    for job_id, state, days in (
        ("old", State.COMPLETED, 40),
        ("new", State.COMPLETED, 2),
        ("active", State.RUNNING, 40),
        ("again", State.PENDING, 40),
    ):
        code = tpu.folder / f"code-{job_id}"
        code.mkdir()
        (code / "train.py").write_text(job_id)
        made = stage.snapshot(code, data / "code")
        found[job_id] = made.digest
        host = data / "runs" / job_id / "attempt-0" / f"{job_id}-slice-0-0"
        host.mkdir(parents=True)
        (host / "log").write_text("said\n" * 10_000)
        (data / "runs" / job_id / "work").mkdir()
        (data / "runs" / job_id / "work" / "checkpoint").write_text("7")
        for path in (data / "code" / made.digest, *(data / "runs" / job_id).rglob("*"), data / "runs" / job_id):
            os.utime(path, (now - days * DAY,) * 2)
        ended = now - days * DAY if state is State.COMPLETED else 0.0
        plan = {"snapshot": {"digest": made.digest, "commit": "", "dirty": False}}
        store.create(JOBS, job_id, Job(job_id, "local", "t", "me", now - 50 * DAY, plan, state=state, ended=ended))
    store.close()
    return found


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def test_clean_removes_what_is_old_says_so_and_leaves_what_active_jobs_need(tpu, digests):
    data = tpu.home / "data"
    planned = tpu("clean", "--dry-run")
    assert "would free" in planned.stderr
    assert names(data / "code") == set(digests.values())
    done = tpu("clean")
    assert done.stdout == planned.stdout
    lines = sorted(line.split()[:2] for line in done.stdout.splitlines())
    assert lines == [["code", digests["old"][:40]], ["run", "old"]]
    assert "not used for 40 days" in done.stdout
    assert "freed" in done.stderr
    assert names(data / "code") == set(digests.values()) - {digests["old"]}
    assert names(data / "runs" / "old") == {"work"}
    for job_id in ("new", "active", "again"):
        assert (data / "runs" / job_id / "attempt-0" / f"{job_id}-slice-0-0" / "log").exists()
    assert tpu("clean").stderr == "nothing to remove\n"


def test_clean_to_a_size_with_checkpoints_keeps_active_jobs_alone(tpu, digests):
    data = tpu.home / "data"
    answer = json.loads(tpu("clean", "--keep", "0", "--keep-code", "0MiB", "--checkpoints", "--json").stdout)
    assert answer["freed"] == sum(one["bytes"] for one in answer["removed"]) > 0
    assert {one["what"] for one in answer["removed"]} == {"code", "run", "checkpoints"}
    assert names(data / "runs") == {"active", "again"}
    assert names(data / "code") == {digests["active"], digests["again"]}
    assert answer["failed"] == []


@pytest.mark.parametrize(
    "words", [("--older-than", "soon"), ("--keep", "much"), ("--keep-code", "-1GiB"), ("--keep", "nan")], ids=" ".join
)
def test_clean_a_limit_that_is_none_is_said_and_nothing_is_removed(tpu, digests, words):
    done = tpu("clean", *words, code=2)
    assert words[0] in done.stderr
    assert names(tpu.home / "data" / "code") == set(digests.values())
