"""Progress of a Terraform run: a bar for each resource on a terminal, plain lines elsewhere."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from types import TracebackType

from rich.console import Console, Group
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from tpukit.cluster.differences import Difference
from tpukit.cluster.terraform_events import Event, Note, Planned, Progressed, Started
from tpukit.cluster.terraform_progress import Progress, Row
from tpukit.core.clock import Clock
from tpukit.core.quantities import counted
from tpukit.jobs.report import duration

ROWS = 20
"""Maximum number of resources in progress to show; Terraform itself works on ten."""
VALUES = 12
"""Maximum number of values to show of one changed resource."""
LINES_SECONDS = 60.0
"""Seconds between two plain lines about one resource."""

_DOING = {"create": "creating", "update": "changing", "delete": "deleting", "read": "reading", "refresh": "looking at"}
_DONE = {"create": "created", "update": "changed", "delete": "deleted", "read": "read", "refresh": "looked at"}
_SIGNS = {"create": ("+", "green"), "update": ("~", "yellow"), "replace": ("±", "magenta"), "delete": ("-", "red")}
_LEAVING = (
    "cancelling: Terraform finishes what is under way and saves its state. The next run imports what Google finishes "
    "later. Another Ctrl-C kills Terraform, and may leave the state locked."
)


class Screen:
    """A display of the resources in progress, fed by events, with a line for each that is done."""

    def __init__(self, title: str, clock: Clock, console: Console) -> None:
        self.progress = Progress()
        self._title, self._clock, self._console = title, clock, console
        self._began = clock.now()
        self._live: Live | None = None
        self._said: dict[str, float] = {}
        self._leaving = False

    def __enter__(self) -> Screen:
        if self._console.is_terminal:
            self._live = Live(get_renderable=self._table, console=self._console, refresh_per_second=5, transient=True)
            self._live.start()
        else:
            self._say(self._title)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live:
            self._live.stop()
            self._live = None

    def leave(self, presses: int) -> None:
        """Report the cancellation. Runs in a signal handler, where only a plain write is safe."""
        self._leaving = True
        if not self._live and presses == 1:
            os.write(2, f"{_LEAVING}\n".encode())

    def feed(self, event: Event) -> None:
        now = self._clock.now()
        row = self.progress.feed(event, now)
        if isinstance(event, Note):
            self._say(event.text)
        if row is None or row.action == "refresh":
            return
        if isinstance(event, Started):
            self._said[row.address] = now
            if not self._live:
                self._say(f"{row.address}: {_DOING.get(row.action, row.action)}")
        elif isinstance(event, Progressed):
            if not self._live and now - self._said.get(row.address, 0.0) >= LINES_SECONDS:
                self._said[row.address] = now
                self._say(f"{row.address}: still {_DOING.get(row.action, row.action)}, {duration(row.elapsed(now))}")
        else:
            self._ended(row)

    def _ended(self, row: Row) -> None:
        word = _DONE.get(row.action, row.action) if row.state == "done" else f"{row.action} failed"
        style = "green" if row.state == "done" else "red"
        line = Text.assemble(f"{row.address}: ", (word, style), f" after {duration(row.seconds)}")
        self._console.print(line, soft_wrap=True)

    def _say(self, text: str) -> None:
        self._console.print(Text(text), soft_wrap=True)

    def _table(self) -> Group:
        now = self._clock.now()
        progress = self.progress
        rows = [row for row in list(progress.rows.values()) if row.state == "running"]
        table = Table(box=None, pad_edge=False, show_header=False)
        for _ in range(4):
            table.add_column(no_wrap=True)
        for row in rows[:ROWS]:
            bar = ProgressBar(total=None, pulse=True, width=24, animation_time=now)
            table.add_row(f"  {row.address}", _DOING.get(row.action, row.action), bar, duration(row.elapsed(now)))
        total, done = len(progress.rows), progress.count("done") + progress.count("failed")
        counted = f" {done} of {total}" if total else ""
        overall = ProgressBar(total=max(total, 1), completed=done, width=24)
        head = Table(box=None, pad_edge=False, show_header=False)
        head.add_row(Text(f"{self._title}{counted}", "bold"), overall, duration(now - self._began))
        more = [Text(f"  and {len(rows) - ROWS} more")] if len(rows) > ROWS else []
        return Group(head, table, *more, *([Text(_LEAVING, "yellow")] if self._leaving else []))


def show_plan(progress: Progress, console: Console, changed: Mapping[str, Sequence[Difference]]) -> None:
    """Print what a plan would do. `changed` has the values before and after, by address."""
    console.print(_plan_table(progress, changed))
    for warning in progress.warnings():
        console.print(f"Warning: {warning.summary}: {warning.detail}", markup=False, soft_wrap=True)
    if summary := progress.summary:
        counts = f"{summary.add} to add, {summary.change} to change, {summary.remove} to destroy."
        console.print(counts, highlight=False)


def question(verb: str, name: str, progress: Progress) -> str:
    gone = [change.address for change in progress.planned if change.action in ("delete", "replace")]
    if verb == "destroy":
        return f"Delete {name} and the {counted(len(gone), 'resource')} above?"
    return f"Apply this to {name}?" + (
        f" {counted(len(gone), 'resource is', 'resources are')} deleted or replaced." if gone else ""
    )


def _plan_table(progress: Progress, changed: Mapping[str, Sequence[Difference]]) -> Table:
    """Return a table of a plan's changes, one on each line, with their changed values below."""
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    table.add_column(no_wrap=True, style="dim")
    for change in progress.planned:
        sign, style = _SIGNS.get(change.action, ("→", "cyan"))
        table.add_row(Text(sign, style), Text(change.address), _why(change))
        found = changed.get(change.address, ())
        for one in found[:VALUES]:
            why = "replaces it" if one.replaces else ""
            table.add_row("", Text.assemble(f"  {one.path}: ", (one.before, "red"), " → ", (one.after, "green")), why)
        if len(found) > VALUES:
            table.add_row("", f"  and {len(found) - VALUES} more values", "")
    return table


def _why(change: Planned) -> str:
    """Return action and reason; the latter may begin with the action: `delete because count index`."""
    reason = change.reason.replace("_", " ")
    return reason if reason.startswith(change.action) else f"{change.action} {reason}".strip()
