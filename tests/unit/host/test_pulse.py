"""Signs of life between steps: only in silence, beside what was reported before, and never in its place."""

from __future__ import annotations

import json
import sys
import threading
import time

import pytest

from tpukit.host import pulse
from tpukit.host.progress import LINE, Progress
from tpukit.host.pulse import Pulse
from tpukit.places import progress as reader


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "progress"


def made(path, clock, **more):
    progress = Progress(str(path), clock=clock, **more)
    return progress, Pulse(progress, clock=clock, cpu=lambda: 42.0)


def test_sign_of_life_is_added_to_the_last_step_which_keeps_its_time(path, clock):
    progress, alive = made(path, clock)
    progress.update({"step": 7, "saved": 5})
    before = reader.read(path, time.time())
    clock.now += 15.0
    alive.beat()
    shown = reader.read(path, time.time())
    assert (shown.step, shown.saved, shown.moved) == (7, 5, before.moved)
    assert (shown.beat, shown.cpu, shown.saves) == (115.0, 42.0, False)


def test_step_that_follows_takes_the_sign_of_life_away(path, clock):
    progress, alive = made(path, clock)
    progress.update({"step": 7})
    clock.now += 15.0
    alive.beat()
    clock.now += 1.0
    progress.update({"step": 8})
    shown = reader.read(path, time.time())
    assert (shown.step, shown.beat) == (8, 0.0)
    alive.beat()
    assert reader.read(path, time.time()).beat == 0.0, "steps are signs enough"


def test_sign_of_life_before_the_first_step_leaves_the_announcement(path, clock):
    progress, alive = made(path, clock)
    progress.announce()
    alive.beat()
    shown = reader.read(path, time.time())
    assert (shown.early, shown.step, shown.beat) == (True, None, 100.0)


def test_save_is_reported_while_it_lasts(path, clock):
    _, alive = made(path, clock)
    with alive.doing("saving"):
        alive.beat()
        assert reader.read(path, time.time()).saves
    alive.beat()
    assert not reader.read(path, time.time()).saves


def test_lines_of_the_log_are_rare(path, clock, capfd):
    progress, alive = made(path, clock, lines=1.0)
    progress.update({"step": 7})
    for _ in range(12):
        clock.now += 10.0
        alive.beat()
    lines = [line for line in capfd.readouterr().out.splitlines() if "beat" in line]
    assert len(lines) == 4
    assert all(json.loads(line.removeprefix(LINE))["step"] == 7 for line in lines)


def test_thread_beats_until_it_is_stopped(path, monkeypatch):
    monkeypatch.setattr(pulse, "SECONDS", 0.01)
    progress = Progress(str(path))
    alive = Pulse(progress)
    alive.start()
    deadline = time.monotonic() + 20.0
    while reader.read(path, time.time()).cpu == 0.0 and time.monotonic() < deadline:
        sum(range(10_000))
    alive.stop()
    shown = reader.read(path, time.time())
    assert shown.beat > 0.0
    assert shown.cpu > 0.0
    (thread,) = [one for one in threading.enumerate() if one.name == "tpukit-pulse"] or [None]
    if thread:
        thread.join(20.0)
        assert not thread.is_alive()


def test_output_that_is_no_file_stops_no_training(path, clock, monkeypatch):
    class NoFile:
        def fileno(self) -> int:
            raise OSError("no file")

    _, alive = made(path, clock, lines=1.0)
    monkeypatch.setattr(sys, "stdout", NoFile())
    alive.beat()
    assert reader.read(path, time.time()).beat == 100.0
