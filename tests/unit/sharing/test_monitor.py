"""The monitor's screens, driven by keys: content, redraws, and the command of each key."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from msgspec.structs import replace
from textual.pilot import Pilot
from textual.widgets import Log, Static

from support.waiting import PATIENCE
from tpukit.cli import monitor_app
from tpukit.cli.job_monitor import Picture
from tpukit.cli.monitor_app import Monitor, Rows
from tpukit.core.errors import Transient
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Attempt, Job
from tpukit.sharing import overview
from tpukit.sharing.windows import Window

LONG = "host train-slice-0-1 failed first: RuntimeError: " + "shapes do not match, " * 9


def window(number: int, parent: int = 0) -> Window:
    return Window("ada", number, f"train-{number:05d}", 1e9, 1, "kmh-tpuvm-v2-32-preemptible-1", parent)


def job(number: int, state: State = State.RUNNING, message: str = "") -> Job:
    attempts = (Attempt(0, 0, 0, State.RUNNING),)
    name = f"train-{number:05d}"
    return Job(name, "tpu-vm", "t", "ada", 1e9, {}, ("sweep",), state, None, message, 1e9 + 500, attempts=attempts)


JOBS = [job(1, State.FAILED, LONG), job(2), job(3, State.COMPLETED), job(4, State.CANCELLED)]


class Store:
    """A source of pictures that records the chosen job of each read."""

    def __init__(self, count: int = 4) -> None:
        self.jobs = {one.id: one for one in (JOBS if count == 4 else [job(at + 1) for at in range(count)])}
        self.windows = [window(at + 1, parent=1 if at == 1 else 0) for at in range(count)]
        self.chosen: list[str] = []
        self.away = False

    def __call__(self, letters: str, chosen: str) -> Picture:
        self.chosen.append(chosen)
        if self.away:
            raise Transient("the store does not answer")
        lines = overview.lines(self.windows, self.jobs)
        return Picture(lines, {name: [f"loading {name}", "compiling"] for name in (chosen, "train-00002") if name})


@pytest.fixture
def commands(tmp_path: Path) -> Callable[[], list[list[str]]]:
    """Return a function that reads the arguments with which `tpu` was started."""
    (tmp_path / "tpu.py").write_text(
        "import json, sys, pathlib\n"
        f"with pathlib.Path({str(tmp_path / 'started')!r}).open('a') as file:\n"
        "    file.write(json.dumps(sys.argv[1:]) + '\\n')\n"
        "print('\\x1b[31mdone as asked', *sys.argv[1:])\n"
        "if 'logs' in sys.argv:\n"
        "    import time\n"
        "    sys.stdout.flush()\n"
        "    time.sleep(600)\n"
    )

    def started() -> list[list[str]]:
        file = tmp_path / "started"
        return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []

    return started


def drive(
    store: Store, tmp_path: Path, steps: Callable[[Monitor, Pilot[None]], Awaitable[None]], size: tuple[int, int]
) -> None:
    async def run() -> None:
        tpu = [sys.executable, "-I", "-S", str(tmp_path / "tpu.py")]
        app = Monitor(store, "wdts", 0.05, tpu, "ada")
        async with app.run_test(size=size) as pilot:
            await until(pilot, lambda: bool(app.query(Rows)) and app.line is not None)
            await steps(app, pilot)

    asyncio.run(asyncio.wait_for(run(), PATIENCE))


async def until(pilot: Pilot[None], holds: Callable[[], bool]) -> None:
    while not holds():
        await pilot.pause(0.02)


async def choose(app: Monitor, pilot: Pilot[None], key: str) -> None:
    """Switch to another job with a key that leads to one."""
    before = app.line.window.number
    await pilot.press(key)
    await until(pilot, lambda: app.line.window.number != before)


def detail(app: Monitor) -> str:
    return str(app.screen_stack[0].query_one("#detail", Static).content)


def screen(app: Monitor) -> list[str]:
    """Return the lines on the screen."""
    lines = app.screen._compositor.render_strips()
    return ["".join(segment.text for segment in strip).rstrip() for strip in lines]


@pytest.mark.parametrize("size", [(80, 24), (200, 50), (40, 12)])
def test_monitor_of_any_size_shows_all_rows_children_below_parents_and_the_newest_active_job(size, tmp_path):
    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: screen(app)[5].startswith("4 "))
        await until(pilot, lambda: "ada:2  train-00002  running" in "\n".join(screen(app)))
        await until(pilot, lambda: all(word in screen(app)[-1] for word in ("log", "resume", "kill")))
        shown = screen(app)
        assert len(shown) == size[1] and max(map(len, shown)) <= size[0]
        assert shown[0].startswith("ada: 1 running, 1 completed, 1 failed, 1 cancelled"[: size[0] - 1])
        rows = [line.split()[0] for line in shown[2:6]]
        assert rows == ["1", "2", "3", "4"]
        assert shown[3].startswith("  2 ")
        assert app.line is not None and app.line.window.number == 2
        assert "compiling" in "\n".join(shown)

    drive(Store(), tmp_path, steps, size)


def test_kill_key_asks_first_and_stops_the_chosen_job_only_when_confirmed(tmp_path, commands):
    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, monitor_app.Confirm))
        await until(pilot, lambda: any("Stop ada:2, train-00002?" in line for line in screen(app)))
        await pilot.press("n")
        await until(pilot, lambda: not isinstance(app.screen, monitor_app.Confirm))
        await pilot.press("k")
        await until(pilot, lambda: isinstance(app.screen, monitor_app.Confirm))
        await pilot.press("y")
        await until(pilot, lambda: "done as asked" in detail(app))
        assert "\x1b" not in detail(app)

    drive(Store(), tmp_path, steps, (80, 24))
    assert commands() == [["job", "stop", "ada:2", "--no-wait"]]


def test_ended_job_is_resumed_by_key_and_not_stopped(tmp_path, commands):
    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        await choose(app, pilot, "end")
        await pilot.press("k")
        await until(pilot, lambda: "ada:4 has ended: cancelled" in detail(app))
        await pilot.press("r")
        await until(pilot, lambda: "done as asked" in detail(app))

    drive(Store(), tmp_path, steps, (80, 24))
    assert commands() == [["job", "resume", "ada:4", "--detach"]]


def test_log_key_follows_the_log_until_left(tmp_path, commands):
    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        await choose(app, pilot, "up")
        await pilot.press("l")
        await until(
            pilot, lambda: bool(app.screen.query(Log)) and "done as asked" in str(app.screen.query_one(Log).lines)
        )
        process = app.screen._process
        reads = len(app._read.chosen)
        await until(pilot, lambda: len(app._read.chosen) > reads + 2)  # the list keeps updating below
        await pilot.press("escape")
        await until(pilot, lambda: process.returncode is not None)
        await until(pilot, lambda: bool(app.screen.query(Rows)))

    drive(Store(), tmp_path, steps, (80, 24))
    assert commands() == [["job", "logs", "ada:1", "--follow"]]


def test_only_rows_that_changed_are_drawn_again(tmp_path):
    store = Store(30)

    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        await until(pilot, lambda: "compiling" in detail(app))
        rows, drawn = app.query_one(Rows), []
        draw = rows.set_lines
        rows.set_lines = lambda lines, chosen: drawn.append(draw(lines, chosen))
        reads, around = len(store.chosen), []
        for name in ("#title", "#heading", "#detail"):
            app.query_one(name, Static).update = around.append
        await until(pilot, lambda: len(drawn) > 3 and len(store.chosen) > reads + 3)
        assert not any(drawn) and not around
        store.jobs["train-00007"] = replace(store.jobs["train-00007"], state=State.FAILED)
        await until(pilot, lambda: any(drawn))
        assert [numbers for numbers in drawn if numbers] == [[6]]

    drive(store, tmp_path, steps, (80, 24))


def test_store_that_is_away_leaves_what_was_known_and_says_so(tmp_path):
    store = Store()

    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        store.away = True
        await until(pilot, lambda: "the store does not answer" in screen(app)[0])
        await until(pilot, lambda: screen(app)[3].startswith("  2 "))
        store.away = False
        await until(pilot, lambda: "does not answer" not in screen(app)[0])

    drive(store, tmp_path, steps, (80, 24))


def test_many_jobs_scroll_and_the_choice_stays_on_its_job_when_another_window_is_cleared(tmp_path):
    store = Store(300)

    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        assert app.line is not None and app.line.window.number == 300
        await until(pilot, lambda: any(line.startswith("300 ") for line in screen(app)))
        for key in ("pageup", "up"):
            await choose(app, pilot, key)
        chosen = app.line
        assert chosen is not None and chosen.window.number < 299
        store.windows = store.windows[10:]
        await until(pilot, lambda: len(app._picture.lines) == 290)
        assert app.line is not None and app.line.window == chosen.window
        await until(pilot, lambda: any(line.startswith(f"{chosen.window.number} ") for line in screen(app)))

    drive(store, tmp_path, steps, (80, 24))


def test_choice_made_while_a_picture_arrives_is_not_lost(tmp_path):
    async def steps(app: Monitor, pilot: Pilot[None]) -> None:
        app.query_one(Rows).choose(0)
        app._draw()  # before the app learns of the choice
        assert app.line is not None and app.line.window.number == 1

    drive(Store(), tmp_path, steps, (80, 24))
