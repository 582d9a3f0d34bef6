"""The picture of a user's jobs: what is in it, in which order, and that it fits the screen."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as some
from rich.console import Console

from tpukit.cli import job_check
from tpukit.manager import overview
from tpukit.manager.settings import UserSettings
from tpukit.manager.users import User
from tpukit.manager.windows import Window
from tpukit.reasons import State
from tpukit.records import Job

PERSON = User("ada", 1.0)


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
    assert placed[0].says == "its script says that it is done"
    assert (placed[1].state, placed[1].active) == ("unknown", False)
    assert "not remembered" in placed[1].says
    assert overview.counts(placed) == "1 running, 1 unknown"


@pytest.mark.parametrize(("width", "height"), [(80, 24), (200, 50), (40, 10), (20, 4)])
def test_picture_fits_the_screen_and_shows_active_jobs_first(width, height):
    listed = [window(number) for number in range(1, 101)]
    long = "the program on host 0 failed: " + "a long sentence " * 8
    jobs = {
        one.job: job(one.number, State.FAILED if one.number % 2 else State.RUNNING, long if one.number % 2 else "")
        for one in listed
    }
    console = Console(width=width, height=height, force_terminal=True)
    body, shown = job_check.fitting(console, overview.lines(listed, jobs), "wdts", PERSON)
    drawn = console.render_lines(body, pad=False)
    assert len(drawn) <= max(1, height - 3)
    text = ["".join(segment.text for segment in line) for line in drawn]
    if shown:
        assert any(line.startswith("100 ") for line in text)  # the newest that is active
        assert max(map(len, text)) <= width


def test_no_windows_are_said():
    body, shown = job_check.fitting(Console(width=80, height=24), [], "wdts", PERSON)
    assert (str(body), shown) == ("no windows", 0)
