"""Tables for a terminal. Rich draws them; where nobody looks at the width (a file, grep), a row stays one line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from tpukit import report
from tpukit.places.base import HostView
from tpukit.reasons import State
from tpukit.store import Event, Job

STYLES = {
    State.PENDING: "yellow",
    State.SCHEDULED: "yellow",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.CANCELLED: "magenta",
}


def console(*, stderr: bool = False) -> Console:
    screen = Console(stderr=stderr)
    return screen if screen.is_terminal else Console(stderr=stderr, width=200)


def _table(*headings: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for heading in headings:
        table.add_column(heading, no_wrap=heading not in ("message", "tags", "what happened"))
    return table


def jobs(found: Sequence[Job], now: float) -> Table:
    table = _table("job", "state", "tpu", "attempt", "age", "tags", "message")
    for job in found:
        took = (job.ended or now) - job.created
        attempt = str(job.attempt.number) if job.attempt else "-"
        state = Text(job.state, STYLES[job.state])
        table.add_row(
            job.id, state, report.shape(job), attempt, report.duration(took), " ".join(job.tags), Text(job.message)
        )
    return table


def attempts(job: Job, now: float) -> Table:
    table = _table("attempt", "stage", "state", "reason", "first to fail", "saved step", "ran for")
    for attempt in job.attempts:
        ran = (attempt.ended or now) - attempt.started if attempt.started else 0.0
        table.add_row(
            str(attempt.number),
            str(attempt.stage),
            Text(attempt.state, STYLES[attempt.state]),
            attempt.reason or "-",
            attempt.host or "-",
            str(attempt.saved) if attempt.saved >= 0 else "-",
            report.duration(ran),
        )
    return table


def hosts(found: Sequence[HostView]) -> Table:
    elsewhere = any(host.node for host in found)
    table = _table("host", "slice", "state", "node" if elsewhere else "pid", "step", "loss", "steps/s", "saved")
    for host in found:
        state = host.state if host.code is None else f"{host.state} ({host.code})"
        table.add_row(
            host.name,
            str(host.slice),
            state,
            host.node or str(host.pid or "-"),
            "-" if host.step is None else str(host.step),
            "-" if host.loss is None else report.number(host.loss, 4),
            "-" if host.steps_per_s is None else report.number(host.steps_per_s, 2),
            str(host.saved) if host.saved >= 0 else "-",
        )
    return table


def events(found: Sequence[Event]) -> Table:
    table = _table("when", "what happened")
    for event in found:
        table.add_row(report.clock_time(event.at), Text(event.text))
    return table
