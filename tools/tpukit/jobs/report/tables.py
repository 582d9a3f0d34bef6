"""Tables for a terminal, drawn by Rich. In a file or pipe, a row stays on one line."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console

from tpukit.jobs import report
from tpukit.jobs.plan import SLICE_JOB
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Attempt, Job
from tpukit.jobs.report.layout import FittedTable, TableField, plain
from tpukit.kernel.store import Event
from tpukit.places.base import HostView

STYLES = {
    State.PENDING: "yellow",
    State.SCHEDULED: "yellow",
    State.RUNNING: "cyan",
    State.COMPLETED: "green",
    State.FAILED: "red",
    State.CANCELLED: "magenta",
}
_UNLIMITED = 100_000


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Raise instead of exiting with 1, as Rich does: the command decides whether a closed pipe matters."""
        raise  # noqa: PLE0704  # called while BrokenPipeError is handled


def console(*, stderr: bool = False) -> Console:
    screen = _Console(stderr=stderr)
    return screen if screen.is_terminal else _Console(stderr=stderr, width=_UNLIMITED)


def jobs(listed: Sequence[Job], now: float, *, owners: bool = False) -> FittedTable:
    """Return the table of jobs, with `owners` if set."""
    columns = [
        TableField("job", [plain(job.id) for job in listed]),
        TableField("state", [job.state for job in listed], styles=[STYLES[job.state] for job in listed]),
        *([TableField("owner", [plain(job.owner) for job in listed], drop=3)] if owners else []),
        TableField("tpu", [plain(report.shape(job)) for job in listed], drop=4),
        TableField("attempt", [str(job.attempt.number) if job.attempt else "-" for job in listed], drop=2),
        TableField("age", [report.elapsed(job.created, job.ended or now) for job in listed], drop=3),
        TableField("tags", [plain(" ".join(job.tags)) for job in listed], drop=1),
    ]
    return FittedTable(columns, heading="message", texts=[plain(job.message) for job in listed])


def attempts(job: Job, now: float) -> FittedTable:
    made = job.attempts
    prefix = f"{job.id}-{SLICE_JOB}-"
    failed = [plain(attempt.host) or "-" for attempt in made]
    return FittedTable(
        [
            TableField("attempt", [str(attempt.number) for attempt in made]),
            TableField("stage", [str(attempt.stage) for attempt in made], drop=1),
            TableField(
                "state", [attempt.state for attempt in made], styles=[STYLES[attempt.state] for attempt in made]
            ),
            TableField("reason", [attempt.reason or "-" for attempt in made], drop=5),
            TableField("first to fail", failed, ("host", [host.removeprefix(prefix) for host in failed]), drop=4),
            TableField("saved step", [_step(attempt.saved) for attempt in made], drop=2),
            TableField("ran for", [_ran(attempt, now) for attempt in made], drop=3),
        ]
    )


def hosts(seen: Sequence[HostView]) -> FittedTable:
    """Return the table of hosts, by slice and host. A narrow table names hosts as in `tpu job logs --host 0-12`."""
    seen = sorted(seen, key=lambda host: (host.slice, host.index, host.name))
    remote = any(host.node for host in seen)
    states = [host.state if host.code is None else f"{host.state} ({host.code})" for host in seen]
    where = [host.node or (str(host.pid) if host.pid else "-") for host in seen]
    return FittedTable(
        [
            TableField("host", [plain(host.name) for host in seen], ("host", short_names(seen))),
            TableField("slice", [str(host.slice) for host in seen], drop=1),
            TableField("state", [plain(state) for state in states]),
            TableField("node" if remote else "pid", [plain(one) for one in where], drop=2),
            TableField("step", ["-" if host.step is None else report.count(host.step) for host in seen], drop=6),
            TableField("loss", ["-" if host.loss is None else report.measure(host.loss, 4) for host in seen], drop=5),
            TableField("steps/s", [_rate(host.steps_per_s) for host in seen], drop=4),
            TableField("saved", [_step(host.saved) for host in seen], drop=3),
        ]
    )


def events(happened: Sequence[Event]) -> FittedTable:
    when = TableField("when", [report.clock_time(event.at) for event in happened])
    return FittedTable([when], heading="what happened", texts=[plain(event.text) for event in happened])


def short_names(seen: Sequence[HostView]) -> list[str]:
    """Return `SLICE-HOST`, or unique ends of names where those are ambiguous, as for pods created by others."""
    numbers = [f"{host.slice}-{host.index}" for host in seen]
    if len(set(numbers)) == len(seen):
        return numbers
    names = [plain(host.name) for host in seen]
    longest = max(map(len, names))
    tail = next(
        (size for size in range(8, longest) if len({name[-size:] for name in names}) == len(set(names))), longest
    )
    return [name if len(name) <= tail + 1 else f"…{name[-tail:]}" for name in names]


def _ran(attempt: Attempt, now: float) -> str:
    return report.elapsed(attempt.started, attempt.ended or now)


def _step(saved: int) -> str:
    return report.count(saved) if saved >= 0 else "-"


def _rate(steps_per_s: float | None) -> str:
    return "-" if steps_per_s is None else report.measure(steps_per_s, 2)
