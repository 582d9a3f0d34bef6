"""Progress from log files: reading from the end of the last read, and the pace of steps."""

from __future__ import annotations

import math

import pytest

from tpukit.places import log_progress
from tpukit.places.log_progress import LogProgress
from tpukit.places.progress import Progress

NOW = 1_800_000_000.0


@pytest.fixture
def log(tmp_path):
    return tmp_path / "log"


def append(log, text):
    with log.open("a") as file:
        file.write(text)


def test_read_goes_on_where_it_ended_and_takes_only_finished_lines(log):
    logs = LogProgress()
    assert logs.read(log, "", NOW) == Progress()
    append(log, "step 1 loss 2.0\nstep 12")
    assert logs.read(log, "", NOW).step == 1
    append(log, "3 loss 1.5\n")
    said = logs.read(log, "", NOW)
    assert (said.step, said.loss) == (123, 1.5)


def test_read_log_that_was_never_read_takes_its_end_alone(log, monkeypatch):
    monkeypatch.setattr(log_progress, "FIRST_BYTES", 40)
    append(log, "step 1 loss 2.0, checkpoint saved\n" * 1000 + "step 2 loss 1.0\n")
    assert LogProgress().read(log, "", NOW).step == 2


def test_read_log_that_begins_anew_is_read_anew(log):
    logs = LogProgress()
    append(log, "step 100 loss 2.0\n")
    logs.read(log, "", NOW)
    log.write_text("step 1 loss 3\n")
    assert logs.read(log, "", NOW).step == 1


def test_read_pace_is_the_longest_time_between_two_steps_and_unknown_before_the_second(log):
    logs = LogProgress()
    paces = []
    for seconds, line in ((0, "step 1 loss 2"), (5, "noise"), (60, "step 2 loss 2"), (70, "step 3 loss 2"), (500, "x")):
        append(log, f"{line}\n")
        paces.append(logs.read(log, "", NOW + seconds).pace)
    assert paces == [math.inf, math.inf, 60.0, 60.0, 60.0]
