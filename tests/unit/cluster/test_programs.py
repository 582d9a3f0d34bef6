"""External programs: limits, and running several at once."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from support.waiting import PATIENCE, alive, until
from tpukit.cluster import gcloud, programs
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Denied, Transient


def test_run_that_takes_longer_than_its_limit_is_ended_with_all_it_started(tmp_path):
    pid = tmp_path / "pid"
    script = f"sleep 600 & echo $! > {pid}; wait"
    with pytest.raises(Transient, match=r"`sh .*` did not end within 3 s"):
        programs.run(programs.command("sh", "-c", script), limit=3.0)
    child = int(pid.read_text())
    until(lambda: not alive(child), "what it started to end")


def test_run_gives_output_errors_and_code():
    program = "import sys; print(sys.stdin.read()); print('no', file=sys.stderr); sys.exit(3)"
    done = programs.run(programs.command(sys.executable, "-c", program), given="yes", limit=60)
    assert (done.code, done.output, done.errors) == (3, "yes\n", "no\n")


def test_side_by_side_works_run_at_the_same_time():
    meeting = threading.Barrier(3, timeout=PATIENCE)
    programs.side_by_side([lambda: (meeting.wait(), None)[1]] * 3)


def test_side_by_side_first_error_is_raised_and_the_rest_never_start():
    started = []

    def fails():
        raise Denied("no")

    with pytest.raises(Denied):
        programs.side_by_side([fails, lambda: started.append(1)], at_once=1)
    assert started in ([], [1])
    with pytest.raises(Denied):
        programs.side_by_side([fails, lambda: time.sleep(3.0), *[lambda: started.append(2)] * 50], at_once=1)
    assert started.count(2) < 50


def test_settled_waits_for_what_google_does_not_know_yet_and_for_nothing_else():
    clock, answers = (
        ManualClock(0.0),
        ["compute.googleapis.com has not been used in project 1", "", "PERMISSION_DENIED"],
    )

    def attempt():
        if said := answers.pop(0):
            raise Denied(said)
        return "done"

    assert gcloud.settled(attempt, clock) == "done"
    with pytest.raises(Denied, match="PERMISSION"):
        gcloud.settled(attempt, clock)
    assert 0 < clock.now() < 10


def test_settled_gives_up_after_minutes_with_the_last_words():
    clock = ManualClock(0.0)

    def attempt():
        raise Denied("Service account a@b does not exist.")

    with pytest.raises(Denied, match="does not exist"):
        gcloud.settled(attempt, clock)
    assert 200 < clock.now() <= 300


def test_run_program_that_is_not_there_is_said_before(monkeypatch):
    monkeypatch.setenv("PATH", os.devnull)
    with pytest.raises(Exception, match="gcloud is not on PATH"):
        gcloud.read(gcloud.command("x"), "asking")


def test_stream_into_a_log_hands_over_every_line_as_it_comes(tmp_path):
    program = "import sys, time\nfor n in range(3):\n print(n, flush=True)\nsys.stdout.write('end')\nsys.exit(4)"
    lines = []
    done = programs.stream(programs.command(sys.executable, "-c", program), lines.append, log=tmp_path / "log")
    assert (done.code, lines) == (4, ["0", "1", "2", "end"])
    assert done.errors.endswith("end")


def test_stream_program_outlives_a_tpu_that_is_killed_and_holds_its_lock_to_its_end(tmp_path):
    """Terraform needs this to save its state even when `tpu` is killed."""
    go, ended = tmp_path / "go", tmp_path / "ended"
    inner = (
        "import pathlib, sys, time\nprint('began', flush=True)\n"
        f"while not pathlib.Path({str(go)!r}).exists(): time.sleep(0.01)\n"
        f"print('x' * 100000, flush=True)\npathlib.Path({str(ended)!r}).touch()"
    )
    outer = (
        "import sys, os, signal, fcntl\nfrom pathlib import Path\nfrom tpukit.cluster import programs\n"
        f"lock = open({str(tmp_path / 'lock')!r}, 'w')\nfcntl.flock(lock, fcntl.LOCK_EX)\n"
        "die = lambda line: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"programs.stream(programs.command(sys.executable, '-c', {inner!r}), die, "
        f"log=Path({str(tmp_path / 'log')!r}), inherit=[lock.fileno()])"
    )
    tools = str(Path(programs.__file__).parents[2])
    killed = subprocess.run([sys.executable, "-c", outer], env={**os.environ, "PYTHONPATH": tools}, timeout=PATIENCE)
    assert killed.returncode == -9
    with (tmp_path / "lock").open("w") as lock:
        with pytest.raises(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        go.touch()
        until(ended.exists, "it to work on")
        fcntl.flock(lock, fcntl.LOCK_EX)  # released when the program ends
