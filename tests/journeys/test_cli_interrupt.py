"""Ctrl-C at every moment between Enter and the end: it takes effect or asks, and every job left behind is reported."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
import time

import pytest

from support.waiting import PATIENCE, until
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import everything
from tpukit.kernel.store.sqlite import SqliteStore

WAIT = "while [ ! -e $TPUKIT_WORKDIR/go ]; do sleep 0.02; done"
NEVER = ("Aborted", "Traceback", "Exception ignored")
DELAYS = [0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.7, 1.0, 1.7]
# Count moments from our first line, because the start of Python is outside our control.
FIRST_LINE = "import pathlib, sys, tpukit.__main__ as tpu; pathlib.Path('began').touch(); tpu.main()"


@pytest.fixture
def tpu(tpu):
    """Start an interpreter for each command, because moments of its start are under test."""
    tpu.forks = False
    return tpu


def sent(tpu):
    """Return all jobs by id, as stored."""
    file = tpu.home / "state" / "store.db"
    if not file.exists():
        return {}
    store = SqliteStore(file)
    try:
        return {entry.key: entry.value for entry in everything(store, JOBS)}
    finally:
        store.close()


def interrupt_after(tpu, monkeypatch, seconds, *arguments):
    """Start a command, and send SIGINT so many seconds after its first line."""
    began = tpu.folder / "began"
    began.unlink(missing_ok=True)
    with monkeypatch.context() as patched:
        patched.setattr(tpu, "argv", lambda *arguments: [sys.executable, "-c", FIRST_LINE, *map(str, arguments)])
        process = tpu.start(*arguments)
    until(began.exists)
    time.sleep(seconds)  # a fixed delay, because the moment is under test
    os.kill(process.pid, signal.SIGINT)
    assert process.wait(timeout=PATIENCE) is not None
    return process


@pytest.mark.parametrize("choice", ["detach", "stop"])
def test_ctrl_c_at_any_moment_is_answered_and_no_job_is_left_unmentioned(tpu, monkeypatch, choice):
    told = set()
    delays = list(DELAYS)
    for seconds in delays:
        file = tpu.file("sh", "-c", WAIT)
        run = interrupt_after(tpu, monkeypatch, seconds, "run", file, "--on-interrupt", choice)
        said = tpu.said(run)
        assert not [word for word in NEVER if word in said], (seconds, said)
        new = set(sent(tpu)) - told
        told |= new
        if not new:
            assert run.returncode == 130, (seconds, said)
            assert "the job was not sent" in said, (seconds, said)
            if not told and seconds == delays[-1] and seconds < PATIENCE:  # this machine is slower than most
                delays.append(2 * seconds)
            continue
        (job_id,) = new
        assert job_id in said.splitlines()[0], (seconds, said)
        job = sent(tpu)[job_id]
        if choice == "stop":
            assert (run.returncode, job.state) == (1, "cancelled"), (seconds, said)
            assert f"{job_id}: stopping;" in said
        else:
            assert run.returncode == 130, (seconds, said)
            assert f"detached: {job_id} keeps running" in said
            assert job.state in ("pending", "scheduled", "running")
            tpu("job", "stop", job_id)
    assert told, "no delay was long enough"


def test_ctrl_c_right_after_the_id_was_printed_leaves_no_job_unmentioned(tpu):
    """Regression test: 12 of 12 runs ended in Aborted! and left a job behind."""
    for _ in range(6):
        run = tpu.start("run", tpu.file("sh", "-c", WAIT), "--on-interrupt", "stop")
        job_id = until(lambda run=run: tpu.said(run).splitlines())[0]
        os.kill(run.pid, signal.SIGINT)
        assert run.wait(timeout=PATIENCE) == 1, tpu.said(run)
        assert f"{job_id}: stopping;" in tpu.said(run)
        assert sent(tpu)[job_id].state == "cancelled"


class Terminal:
    """`tpu` on a terminal where it can ask questions."""

    def __init__(self, tpu, *arguments):
        self._main, child = pty.openpty()
        env = {**tpu.env, "TERM": "xterm", "COLUMNS": "120"}
        self.process = subprocess.Popen(
            tpu.argv(*arguments),
            stdin=child,
            stdout=child,
            stderr=child,
            env=env,
            cwd=tpu.folder,
            start_new_session=True,
        )
        tpu._started.append(self.process)
        os.close(child)
        os.set_blocking(self._main, False)
        self.text = ""

    def shows(self, pattern):
        def look():
            try:
                self.text += os.read(self._main, 65536).decode(errors="replace")
            except BlockingIOError:
                pass
            except OSError:  # the other side is closed
                pass
            return re.search(pattern, self.text)

        return until(look, f"{pattern} on the screen")

    def types(self, text):
        os.write(self._main, text.encode())

    def presses_ctrl_c(self):
        os.kill(self.process.pid, signal.SIGINT)


def test_ctrl_c_at_a_terminal_asks_and_obeys_each_answer(tpu):
    screen = Terminal(tpu, "run", tpu.file("sh", "-c", WAIT))
    job_id = tpu.the_job()
    for answer in ("continue", "g", "what"):
        screen.text = ""
        screen.presses_ctrl_c()
        screen.shows("Stop the job, detach from it, or go on")
        screen.text = ""
        screen.types(f"{answer}\n")
        screen.shows("type s, d or g" if answer == "what" else f"{job_id}.*running")
    screen.types("s\n")
    screen.shows("stopping;")
    assert screen.process.wait(timeout=PATIENCE) == 1
    assert tpu.show(job_id)["state"] == "cancelled"


def test_job_is_driven_on_while_the_question_waits_for_an_answer(tpu):
    screen = Terminal(tpu, "run", tpu.file("sh", "-c", WAIT))
    job_id = tpu.the_job()
    screen.shows("running")
    screen.presses_ctrl_c()
    screen.shows("Stop the job, detach from it, or go on")
    (tpu.workdir(job_id) / "go").touch()
    until(lambda: sent(tpu)[job_id].state == "completed", f"{job_id} to complete though nobody answers")
    assert screen.process.wait(timeout=PATIENCE) == 0


def test_ctrl_c_at_the_question_itself_detaches_and_says_so(tpu):
    screen = Terminal(tpu, "run", tpu.file("sh", "-c", WAIT))
    job_id = tpu.the_job()
    screen.presses_ctrl_c()
    screen.shows("Stop the job, detach from it, or go on")
    screen.presses_ctrl_c()
    screen.shows(f"detached: {job_id} keeps running")
    assert screen.process.wait(timeout=PATIENCE) == 130
    tpu("job", "stop", job_id)


@pytest.mark.parametrize("arguments", [["job", "list"], ["job", "logs", "train", "-f"], ["--help"]], ids=str)
def test_ctrl_c_outside_run_is_silent_and_130(tpu, monkeypatch, arguments):
    job_id = tpu("run", tpu.file("sh", "-c", "echo hello; " + WAIT), "--detach").stdout.strip()
    serving = tpu.start("serve", "--no-http")
    tpu.pid(job_id)
    for seconds in (0.0, 0.05, 0.1, 0.3):
        process = interrupt_after(tpu, monkeypatch, seconds, *arguments)
        assert process.returncode in (0, 130)
        assert not [word for word in NEVER if word in tpu.said(process)], tpu.said(process)
    tpu("job", "stop", job_id)
    os.kill(serving.pid, signal.SIGTERM)
    assert serving.wait(timeout=PATIENCE) == 0
