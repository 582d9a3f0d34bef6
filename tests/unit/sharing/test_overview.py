"""The overview of a user's jobs: its content, its order, and that it fits the screen."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tpukit.cli import context, job_check
from tpukit.core.clock import ManualClock
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Attempt, Job
from tpukit.sharing import overview
from tpukit.sharing.settings import UserSettings
from tpukit.sharing.windows import Window


def window(number: int, parent: int = 0, **fields) -> Window:
    return Window("ada", number, f"job-{number}", float(number), parent=parent, tpu="g-v2-32-preemptible-1", **fields)


def job(number: int, state: State = State.RUNNING, message: str = "") -> Job:
    return Job(f"job-{number}", "local", "t", "ada", float(number), plan={}, state=state, message=message)


@given(some.lists(some.integers(0, 12), max_size=12))
def test_each_window_is_there_once_and_children_are_below_their_parents(parents):
    listed = [window(number + 1, parent) for number, parent in enumerate(parents)]
    placed = overview.lines(listed, {})
    numbers = [line.window.number for line in placed]
    assert sorted(numbers) == [one.number for one in listed]
    depths = {line.window.number: line.depth for line in placed}
    for line in placed:
        if line.depth:
            assert depths[line.window.parent] == line.depth - 1
            assert numbers.index(line.window.parent) < numbers.index(line.window.number)


def test_letters_are_those_asked_for_or_those_of_the_settings():
    assert overview.shown(UserSettings()) == "wdts"
    assert overview.shown(UserSettings(monitor_dir=False, monitor_tpu=False, monitor_verbose=True)) == "wsv"
    assert overview.shown(UserSettings(), "vsd") == "dsv"


def test_line_says_what_is_not_in_the_state():
    placed = overview.lines([window(1, finished=5.0), window(2)], {"job-1": job(1)})
    assert placed[0].says == "its script reported that it is done"
    assert (placed[1].state, placed[1].active) == ("unknown", False)
    assert "was removed" in placed[1].says
    assert overview.counts(placed) == "1 running, 1 unknown"


@pytest.mark.parametrize("width", [20, 40, 80, 200])
def test_rows_to_choose_from_are_one_line_each_and_fit(width, monkeypatch):
    monkeypatch.setattr(context, "CLOCK", ManualClock(100_000.0))  # ages are a letter longer after ten o'clock
    long = "the program on host 0 failed: " + "a long sentence " * 20
    listed = [window(number) for number in range(1, 101)]
    jobs = {one.job: job(one.number, State.FAILED, long) for one in listed}
    rows = job_check.table(overview.lines(listed, jobs), "wdts", {"job-3": ["step 1"]}).rows(width)
    assert len(rows) == 101
    assert max(row.cell_len for row in rows) <= width
    assert all(str(row).split()[:1] == [str(number)] for number, row in enumerate(rows) if number)
    assert ("the program" in str(rows[1])) == (width >= 80)


def test_output_is_wanted_of_jobs_that_have_saved_nothing_or_of_all_when_asked():
    began = {"attempts": (Attempt(0, 0, 0),)}, {"attempts": (Attempt(0, 0, 0, saved=3),)}, {}
    jobs = {f"job-{at + 1}": msgspec.structs.replace(job(at + 1), **fields) for at, fields in enumerate(began)}
    placed = overview.lines([window(1), window(2), window(3), window(4)], jobs)
    assert [one.id for one in job_check.wanting_output(placed, "wdts")] == ["job-1"]
    assert [one.id for one in job_check.wanting_output(placed, "sv")] == ["job-1", "job-2", "job-3"]
    assert job_check.wanting_output(placed, "wd") == []
