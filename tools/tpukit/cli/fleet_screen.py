"""Display of a fleet: the table, its summary, and the same as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli import context
from tpukit.core.errors import TpukitError
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tpukit.fleet.progress import Made, Progress
    from tpukit.fleet.records import Worker

LOST = (
    *("PREEMPTED", "TERMINATED", "NOT_FOUND", "STOPPED", "HIDDEN"),
    *("queued: SUSPENDING", "queued: SUSPENDED", "queued: FAILED"),
)
ROOM = 6
"""Lines of the dashboard in addition to its rows, on a terminal."""
_STYLES = {"done": "dim", "failed": "red", "READY": "green"}


class Screen:
    """A dashboard that redraws itself on a terminal; elsewhere, a line whenever the totals change."""

    def __init__(self, console: Any, *, live: bool, interval: float) -> None:
        self._console, self._wanted, self._interval, self._last = console, live, interval, ""
        self._live: Any = None

    def __enter__(self) -> Screen:
        if self._wanted and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False, screen=False, vertical_overflow="crop")
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def say(self, fleet: str, text: str) -> None:
        """Print a line, above the dashboard if there is one: the dashboard tracks its cursor position."""
        if self._live:
            from rich.text import Text

            self._console.print(Text(f"{fleet}: {text}"), soft_wrap=True)
        else:
            context.say(fleet, text)

    def show(self, workers: Sequence[Worker]) -> None:
        if not self._wanted:
            return
        made = progress(workers)
        if self._live:
            output = next((one.work.output for one in workers if one.work), "")
            now = f"{output} at {datetime.now():%H:%M:%S}, every {self._interval:g} s"
            rows = max(1, self._console.size.height - ROOM)
            drawn = dashboard(workers, made, heading=f"{now}; Ctrl-C leaves the fleet running", rows=rows)
            self._live.update(drawn, refresh=True)
            return
        line = summary(workers, made.total)
        if line != self._last:
            self._last = line
            click.echo(line, err=True)


def progress(workers: Sequence[Worker], output: str = "") -> Progress:
    """Return the contents of the bucket, of `output` or of the workers' output; empty if it is unreachable."""
    from tpukit.fleet import progress as reading
    from tpukit.fleet.progress import Progress

    outputs = [output] if output else sorted({worker.work.output for worker in workers if worker.work})
    try:
        return reading.read(outputs[0]) if outputs else Progress()
    except TpukitError:
        return Progress()


def counts(workers: Sequence[Worker]) -> dict[str, int]:
    lost = [one for one in workers if needs_recovery(one)]
    return {
        "healthy": sum(1 for one in workers if one.tpu_state == "READY" and not needs_recovery(one)),
        "working": sum(1 for one in workers if one.attempt and one.state == "active" and not needs_recovery(one)),
        "needs recovery": len(lost),
    }


def needs_recovery(worker: Worker) -> bool:
    return worker.state == "failed" or bool(worker.silent) or (worker.state == "active" and worker.tpu_state in LOST)


def summary(workers: Sequence[Worker], total: Made) -> str:
    words = ", ".join(f"{name} {number}" for name, number in counts(workers).items())
    amounts = f"{counted(total.samples, 'sample')} in {counted(total.shards, 'shard')}"
    return f"{counted(len(workers), 'worker')}: {words}; {amounts}"


def dashboard(
    workers: Sequence[Worker], made: Progress, *, heading: str = "", rows: int | None = None
) -> RenderableType:
    """Return the dashboard. `rows`: limit of workers to show; the most urgent are shown if there are more."""
    from rich.console import Group
    from rich.text import Text

    from tpukit.jobs.report.layout import FittedTable, TableField, plain

    shown = _most_urgent(workers, rows)
    figures = [_figures(one, made) for one in shown]
    total = (made.total.samples, made.total.shards, made.total.shards)
    numbers = [_right([str(row[at]) for row in (*figures, total)], name) for at, name in enumerate(_NUMBERS)]
    fields = [
        TableField(
            "tpu",
            [plain(one.tpu) for one in shown] + ["total"],
            short=("worker", [plain(one.slot) for one in shown] + ["total"]),
        ),
        TableField("zone", [plain(one.zone) for one in shown] + [""], drop=1),
        TableField(
            "state",
            [plain(_state(one)) for one in shown] + [""],
            short=("state", [plain(_short_state(one)) for one in shown] + [""]),
            styles=[_STYLES.get(_state(one), "yellow") for one in shown] + [""],
        ),
        *(TableField(head, cells) for head, cells in numbers),
    ]
    table = FittedTable(fields, heading="message", texts=[*(_message(one) for one in shown), ""])
    left = len(workers) - len(shown)
    more = [Text(f"and {counted(left, 'more worker')}; `tpu fleet status` shows all", "dim")] if left else []
    first = [Text(heading, "dim")] if heading else []
    # The summary comes first: messages that need more lines than fit are cut off at the end.
    return Group(*first, Text(summary(workers, made.total)), table, *more)


_NUMBERS = ("samples", "shards", "objects")


def as_json(workers: Sequence[Worker], made: Progress) -> dict[str, Any]:
    rows = [
        {
            "tpu": one.tpu,
            "zone": one.zone,
            "type": one.tpu_type,
            "state": one.tpu_state or "NOT_FOUND",
            "worker": one.state,
            **dict(zip(_NUMBERS, _figures(one, made), strict=True)),
            "needs recovery": needs_recovery(one),
            "message": one.message,
        }
        for one in workers
    ]
    return {"workers": rows, "samples": made.total.samples, "objects": made.total.shards, **counts(workers)}


def _figures(worker: Worker, made: Progress) -> tuple[int, int, int]:
    """Return samples, shards and objects of a worker.

    Samples and shards are the maximum of the bucket's and the host's counts; objects are those in the bucket.
    """
    from tpukit.fleet.progress import Made

    own = made.workers.get(worker.slot, Made())
    return max(worker.samples, own.samples), max(worker.shards, own.shards), own.shards


def _most_urgent(workers: Sequence[Worker], rows: int | None) -> Sequence[Worker]:
    if rows is None or len(workers) <= rows:
        return workers
    chosen = sorted(workers, key=lambda one: (not needs_recovery(one), one.state == "done", not one.message))[
        : rows - 1
    ]
    return [one for one in workers if one in chosen]


def _right(cells: list[str], heading: str) -> tuple[str, list[str]]:
    width = max(map(len, (heading, *cells)))
    return heading.rjust(width), [cell.rjust(width) for cell in cells]


def _message(worker: Worker) -> str:
    from tpukit.jobs.report.layout import plain

    return "" if worker.state == "done" else plain(worker.message)


def _short_state(worker: Worker) -> str:
    return _state(worker).removeprefix("queued: ").partition("_FOR_")[0]


def _state(worker: Worker) -> str:
    return worker.state if worker.state in ("done", "failed") else worker.tpu_state or "-"
