"""Screens of the monitor.

A key runs the equivalent command in a separate process, and the display reads the store, so the two cannot disagree.
Only rows whose text has changed are redrawn.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, ClassVar

from rich.text import Text
from textual import events
from textual.app import App, ComposeResult
from textual.binding import Binding, BindingType
from textual.geometry import Size
from textual.message import Message
from textual.screen import ModalScreen, Screen
from textual.scroll_view import ScrollView
from textual.strip import Strip
from textual.widgets import Log, Static

from tpukit.cli.job_check import NARROW, table
from tpukit.cli.job_monitor import Picture
from tpukit.core.errors import TpukitError
from tpukit.jobs.report.layout import plain
from tpukit.sharing import overview
from tpukit.sharing.overview import Line

LOG_LINES = 10_000
FLUSH_SECONDS = 0.25


class Rows(ScrollView, can_focus=True):
    """Lines of text, one of them chosen."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", show=False),
        Binding("down", "move(1)", show=False),
        Binding("pageup", "page(-1)", show=False),
        Binding("pagedown", "page(1)", show=False),
        Binding("home", "move(-1000000)", show=False),
        Binding("end", "move(1000000)", show=False),
    ]

    class Chosen(Message):
        """Message: another line was chosen."""

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Text] = []
        self.chosen = 0

    def set_lines(self, lines: list[Text], chosen: int) -> list[int]:
        """Replace the lines, and return the numbers of those redrawn."""
        old, before = self._lines, self.chosen
        self._lines, self.chosen = lines, max(0, min(chosen, len(lines) - 1))
        moved = {before, self.chosen} if before != self.chosen else set()
        changed = [at for at, line in enumerate(lines) if at in moved or at >= len(old) or old[at] != line]
        if len(old) != len(lines):
            self.virtual_size = Size(0, len(lines))
            self.refresh()
        else:
            for at in changed:
                self.refresh_line(at)
        self._scroll()
        return changed

    def render_line(self, y: int) -> Strip:
        at, width = y + self.scroll_offset.y, self.size.width
        if at >= len(self._lines):
            return Strip.blank(width)
        line = self._lines[at].copy()
        line.truncate(width, pad=True)
        if at == self.chosen:
            line.stylize("reverse")
        return Strip(line.render(self.app.console), width)

    def action_move(self, by: int) -> None:
        self.choose(self.chosen + by)

    def action_page(self, by: int) -> None:
        self.choose(self.chosen + by * max(1, self.size.height - 1))

    def on_click(self, event: events.Click) -> None:
        self.choose(event.y + self.scroll_offset.y)

    def on_resize(self) -> None:
        self._scroll()

    def choose(self, at: int) -> None:
        before, self.chosen = self.chosen, max(0, min(at, len(self._lines) - 1))
        if before != self.chosen:
            self.refresh_line(before)
            self.refresh_line(self.chosen)
            self._scroll()
            self.post_message(self.Chosen())

    def _scroll(self) -> None:
        top, height = self.scroll_offset.y, max(1, self.size.height)
        if not top <= self.chosen < top + height:
            self.scroll_to(y=self.chosen if self.chosen < top else self.chosen - height + 1, animate=False)


class Confirm(ModalScreen[bool]):
    """A question with the answers y and n."""

    CSS = """
    Confirm { align: center middle; }
    Confirm Static { width: auto; max-width: 90%; padding: 1 2; border: solid red; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("y", "dismiss(True)", "yes"),
        Binding("n,escape,q,ctrl+c", "dismiss(False)", "no"),
    ]

    def __init__(self, question: str) -> None:
        super().__init__()
        self._question = question

    def compose(self) -> ComposeResult:
        yield Static(Text(f"{self._question}\n\ny yes   n no"))


class LogScreen(Screen[None]):
    """Live output of a job's hosts."""

    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape,q,l,ctrl+c", "dismiss", "back")]

    def __init__(self, name: str, argv: Sequence[str]) -> None:
        super().__init__()
        self._about, self._argv = name, argv
        self._process: asyncio.subprocess.Process | None = None
        self._lines: list[str] = []

    def compose(self) -> ComposeResult:
        yield Static(Text(self._about, style="bold", no_wrap=True), classes="line")
        yield Log(max_lines=LOG_LINES)
        yield Static(_keys("q back"), classes="line")

    def on_mount(self) -> None:
        self.set_interval(FLUSH_SECONDS, self._flush)
        self.run_worker(self._follow())

    def on_unmount(self) -> None:
        if self._process is not None:
            with suppress(ProcessLookupError):
                self._process.kill()

    async def _follow(self) -> None:
        self._process = await _started(self._argv)
        assert self._process.stdout is not None
        while line := await _line(self._process.stdout):
            self._lines.append(plain(line.decode(errors="replace").rstrip("\r\n")))
        await self._process.wait()
        self._lines.append("(that is all)")

    def _flush(self) -> None:
        """Write all new lines at once: a program that prints much must not slow down the screen."""
        if self._lines:
            lines, self._lines = self._lines[-LOG_LINES:], []
            self.query_one(Log).write_lines(lines)


class Monitor(App[None]):
    CSS = """
    .line { height: 1; }
    Rows { height: 1fr; scrollbar-size-vertical: 1; }
    #detail { height: 30%; min-height: 5; border-top: solid grey; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("l,enter", "log", "log"),
        Binding("r", "resume", "resume"),
        Binding("k", "stop", "kill"),
        Binding("v", "show('v')", "output"),
        Binding("d", "show('d')", "directory", show=False),
        Binding("t", "show('t')", "TPU", show=False),
        Binding("q,ctrl+c", "quit", "quit"),
    ]
    ENABLE_COMMAND_PALETTE = False

    class Arrived(Message):
        """Message: the result of a read, or its error."""

        def __init__(self, picture: Picture | None, error: str = "") -> None:
            super().__init__()
            self.picture, self.error = picture, error

    def __init__(
        self, read: Callable[[str, str], Picture], letters: str, seconds: float, tpu: Sequence[str], user: str
    ) -> None:
        """Create the app. `read` takes the shown letters and the chosen job's id; `tpu` is the command line prefix."""
        super().__init__()
        self.theme = "ansi-dark"
        self._read, self._letters, self._seconds, self._tpu = read, letters, seconds, list(tpu)
        self._user = user
        self._due, self._drawn, self._left = threading.Event(), threading.Event(), threading.Event()
        self._picture = Picture((), {})
        self._window = 0  # number of the chosen window
        self._numbers: list[int] = []  # numbers of the drawn rows, in order
        self._away = ""
        self._notice = ""
        self._texts: dict[str, Text] = {}  # texts above and below the list

    def compose(self) -> ComposeResult:
        yield Static(id="title", classes="line")
        yield Static(id="heading", classes="line")
        yield Rows()
        yield Static(id="detail")
        yield Static(_keys("l log  r resume  k kill  v output  q quit"), classes="line")

    def on_mount(self) -> None:
        self._main.query_one(Rows).focus()
        # A daemon thread: quitting does not wait for an unreachable store.
        threading.Thread(target=self._read_for_ever, name="monitor", daemon=True).start()

    def on_unmount(self) -> None:
        self._left.set()
        self._drawn.set()
        self._due.set()

    def on_resize(self) -> None:
        self._draw()

    @property
    def _drawable(self) -> bool:
        """True if all widgets exist, which is not so before the first screen and while the last one is removed."""
        return bool(self.screen_stack) and len(self._main.query("#title, #heading, Rows, #detail")) == 4

    @property
    def _main(self) -> Screen[Any]:
        """The list of jobs, even if another screen covers it."""
        return self.screen_stack[0]

    @property
    def line(self) -> Line | None:
        """The chosen line."""
        return next((line for line in self._picture.lines if line.window.number == self._window), None)

    def _read_for_ever(self) -> None:
        while not self._left.is_set():
            self._due.clear()
            chosen = self.line
            try:
                arrived = self.Arrived(self._read(self._letters, chosen.window.job if chosen else ""))
            except TpukitError as error:
                arrived = self.Arrived(None, str(error))
            self._drawn.clear()
            self.post_message(arrived)
            self._due.wait(self._seconds)
            self._drawn.wait()  # otherwise messages pile up if drawing takes longer than the interval

    def on_monitor_arrived(self, arrived: Arrived) -> None:
        first = not self._picture.lines
        self._away = arrived.error
        if arrived.picture is not None:
            self._picture = arrived.picture
        lines = self._picture.lines
        if first and lines:
            active = [line for line in lines if line.active]
            self._window = (active or lines)[-1].window.number
            self._due.set()
        self._draw()
        self._drawn.set()

    def on_rows_chosen(self) -> None:
        if self._drawable:
            self._take_choice()
            self._due.set()
            self._draw_detail()

    def _take_choice(self) -> None:
        """Apply the user's choice among the drawn rows, even if newer data was read since."""
        at = self._main.query_one(Rows).chosen
        if at < len(self._numbers):
            self._window = self._numbers[at]

    def _draw(self) -> None:
        if not self._drawable:
            return
        self._take_choice()
        picture, rows = self._picture, self._main.query_one(Rows)
        width = max(1, self.size.width - 1)  # minus the scrollbar
        say = f"{self._user}: {overview.counts(picture.lines)}"
        if self._away:
            say = f"{plain(self._away)}; retrying; this is the last known state: {say}"
        self._put("#title", Text(say, style="bold", no_wrap=True, overflow="ellipsis"))
        numbers = [line.window.number for line in picture.lines]
        if numbers and self._window not in numbers:  # the window was cleared: choose its neighbour
            self._window = numbers[min(rows.chosen, len(numbers) - 1)]
        heading, *lines = [Text("no windows; `tpu run TPU USER` opens one")]
        if numbers:
            last = {name: printed[-1:] for name, printed in picture.output.items()}
            heading, *lines = table(picture.lines, self._letters, last, narrow=width < NARROW).rows(width)
        self._put("#heading", heading)
        rows.set_lines(lines, numbers.index(self._window) if numbers else 0)
        self._numbers = numbers
        self._draw_detail()

    def _draw_detail(self) -> None:
        pane = self._main.query_one("#detail", Static)
        line, room = self.line, max(1, pane.size.height)
        if line is None:
            self._put("#detail", Text(self._notice))
            return
        job = line.job
        about = [line.window.name, line.window.job, line.state, line.window.tpu, *(job.tags if job else ())]
        parts = [Text(self._notice, style="yellow")] if self._notice else []
        parts.append(Text(plain("  ".join(filter(None, about))), style="bold"))
        if line.says:
            parts.append(Text(plain(line.says)))
        wrapped = [row for part in parts for row in part.wrap(self.console, max(1, pane.size.width))]
        printed = [Text(text, style="dim") for text in self._picture.output.get(line.window.job, ())]
        last = [row for part in printed for row in part.wrap(self.console, max(1, pane.size.width))]
        left = max(0, room - len(wrapped))
        self._put("#detail", Text("\n").join([*wrapped[:room], *(last[-left:] if left else [])]))

    def _put(self, where: str, text: Text) -> None:
        """Update a widget if its text has changed."""
        if self._texts.get(where) != text:
            self._texts[where] = text
            self._main.query_one(where, Static).update(text)

    def action_show(self, letter: str) -> None:
        shown = set(self._letters) ^ {letter}
        self._letters = "".join(one for one in overview.LETTERS if one in shown)
        self._draw()
        self._due.set()

    def action_log(self) -> None:
        if self.line is not None:
            name = self.line.window.name
            self.push_screen(
                LogScreen(f"{name}  {self.line.window.job}", [*self._tpu, "job", "logs", name, "--follow"])
            )

    def action_resume(self) -> None:
        if self.line is not None:
            self._run("job", "resume", self.line.window.name, "--detach")

    def action_stop(self) -> None:
        if self.line is None:
            return
        if not self.line.active:
            self._say(f"{self.line.window.name} has ended: {self.line.state}")
            return
        name = self.line.window.name

        def answered(yes: bool | None) -> None:
            if yes:
                self._run("job", "stop", name, "--no-wait")

        job = self.line.window.job
        self.push_screen(Confirm(f"Stop {name}, {job}? Its hosts get their grace time to save."), answered)

    def _run(self, *words: str) -> None:
        self._say(f"tpu {' '.join(words)} ...")
        self.run_worker(self._ran(words))

    async def _ran(self, words: Sequence[str]) -> None:
        process = await _started([*self._tpu, *words])
        out, _ = await process.communicate()
        said = plain(" ".join(out.decode(errors="replace").split()))
        self._say(said or f"tpu {' '.join(words)}: done")
        self._due.set()

    def _say(self, text: str) -> None:
        self._notice = text
        self._draw_detail()


def _keys(text: str) -> Text:
    line = Text(text, style="dim", no_wrap=True, overflow="ellipsis")
    line.highlight_regex(r"(?:^|  )(\w)(?= )", "bold not dim")
    return line


async def _started(argv: Sequence[str]) -> asyncio.subprocess.Process:
    return await asyncio.create_subprocess_exec(
        *argv,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )


async def _line(stream: asyncio.StreamReader) -> bytes:
    """Return the next line, or a piece of one that is too long."""
    try:
        return await stream.readline()
    except ValueError:
        return await stream.read(65536)
