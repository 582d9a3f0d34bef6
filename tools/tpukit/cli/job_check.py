"""`tpu job check` and `tpu job monitor`: all jobs of a user, once or for as long as one watches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli.who import user_name, user_option

if TYPE_CHECKING:
    from rich.console import Console
    from rich.text import Text

    from tpukit.manager.overview import Line
    from tpukit.manager.users import User
    from tpukit.records import Job
    from tpukit.report.layout import FittedTable

READERS = 8
_NARROW = 120
_show = click.option(
    "--show", default="", help="What to show: w window, d directory, t TPU, s state, v output; as your settings say."
)


@click.command()
@user_option
@_show
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(user: str, show: str, as_json: bool) -> None:
    """Show all jobs of a user once: windows, children below their parents."""
    from tpukit.cli import context
    from tpukit.manager import overview, users

    person = users.get(context.store(), user_name(user))
    lines = read(person.name)
    if as_json:
        context.print_json([_json_of(line) for line in lines])
        return
    if not lines:
        click.echo(f"{person.name} has no windows; `tpu job start TPU --user {person.name}` makes one", err=True)
        return
    _print(table(lines, overview.shown(person.settings, show), person))
    click.echo(overview.counts(lines), err=True)


@click.command()
@user_option
@_show
def monitor(user: str, show: str) -> None:
    """Follow all jobs of a user until Ctrl-C. Without a terminal: show them once."""
    import sys

    from tpukit.cli import context
    from tpukit.manager import overview, users

    person = users.get(context.store(), user_name(user))
    letters = overview.shown(person.settings, show)
    if not sys.stdout.isatty():
        _print(table(read(person.name), letters, person))
        return
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    from tpukit.report import tables

    with Live(console=tables.console(), auto_refresh=False, screen=True) as live:
        while True:
            lines = read(person.name)
            body, shown = fitting(live.console, lines, letters, person)
            more = f"; {len(lines) - shown} not shown" if shown < len(lines) else ""
            text = f"{person.name}: {overview.counts(lines)}{more}"
            status = Text(text, style="bold", no_wrap=True, overflow="ellipsis")
            live.update(Group(status, Text(""), body), refresh=True)
            context.CLOCK.sleep(person.settings.monitor_upd_time)


def fitting(console: Console, lines: Sequence[Line], letters: str, person: User) -> tuple[FittedTable | Text, int]:
    """As many windows as the screen holds, active ones first, newest first; how many they are."""
    from rich.text import Text

    from tpukit.manager import overview

    room = max(1, console.height - 3)
    first = sorted(lines, key=lambda line: (not line.active, -line.window.created))[:room]
    jobs = {line.job.id: line.job for line in lines if line.job}
    while first:
        chosen = {line.window.number for line in first}
        placed = overview.lines([line.window for line in lines if line.window.number in chosen], jobs)
        body = table(placed, letters, person, narrow=console.width < _NARROW)
        height = len(console.render_lines(body, pad=False))
        if height <= room:
            return body, len(first)
        first = first[: -max(1, (height - room) // 2)]
    return Text("no windows"), 0


def read(user: str) -> list[Line]:
    from tpukit.cli import context
    from tpukit.manager import overview, windows

    listed = windows.of_user(context.store(), user)
    return overview.lines(listed, jobs_by_id([window.job for window in listed]))


def table(lines: Sequence[Line], letters: str, person: User, *, narrow: bool = False) -> FittedTable:
    """`narrow`: names of TPUs without what all of a group begin with."""
    from tpukit.cli import context
    from tpukit.report.layout import FittedTable, TableField, plain
    from tpukit.report.tables import STYLES

    now = context.CLOCK.now()
    names = [plain(line.window.tpu) for line in lines]
    styles = {str(state): style for state, style in STYLES.items()}
    fields = {
        "w": [TableField("w", [f"{'  ' * line.depth}{line.window.number}" for line in lines])],
        "d": [TableField("d", [str(line.window.directory) for line in lines], drop=1)],
        "t": [TableField("tpu", _short(lines) if narrow else names, ("tpu", _short(lines)), drop=4)],
        "s": [
            TableField("state", [line.state for line in lines], styles=[styles.get(line.state, "") for line in lines]),
            TableField("age", [_age(line.job, now) for line in lines], drop=2),
            TableField("tags", [plain(" ".join(line.job.tags)) if line.job else "" for line in lines], drop=3),
        ],
    }
    chosen = [field for letter in letters for field in fields.get(letter, [])] or fields["w"]
    says = [plain(line.says) for line in lines]
    if "v" in letters:
        says = [" | ".join(filter(None, (text, _output(line, person)))) for text, line in zip(says, lines, strict=True)]
    return FittedTable(chosen, heading="message", texts=says if "s" in letters or "v" in letters else ())


def _age(job: Job | None, now: float) -> str:
    from tpukit import report

    return report.elapsed(job.created, job.ended or now) if job else "-"


def _short(lines: Sequence[Line]) -> list[str]:
    from tpukit.manager import names

    parsed = [names.parse_tpu(line.window.tpu) for line in lines]
    return [one.short if one else line.window.tpu for one, line in zip(parsed, lines, strict=True)]


def jobs_by_id(job_ids: Sequence[str]) -> dict[str, Job]:
    """Those that are remembered; from a store on a network, several at once. A list would read all jobs of all."""
    from tpukit.cli import context
    from tpukit.errors import TpukitError
    from tpukit.records import JOBS

    store, wanted = context.store(), list(dict.fromkeys(job_ids))

    def read(job_id: str) -> Job | None:
        try:
            return store.get(JOBS, job_id).value
        except TpukitError:  # gone, or of a newer version
            return None

    if len(wanted) > READERS and "://" in store.address:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(READERS) as pool:
            jobs = list(pool.map(read, wanted))
    else:
        jobs = [read(job_id) for job_id in wanted]
    return {job.id: job for job in jobs if job is not None}


def _output(line: Line, person: User) -> str:
    """The end of what its first host printed."""
    from itertools import islice

    from tpukit.cli import context
    from tpukit.errors import TpukitError
    from tpukit.places.base import Handle
    from tpukit.report.layout import plain

    if line.job is None or not line.job.attempts or line.job.place not in context.places():
        return ""
    try:
        handle = Handle.of(line.job)
        host = handle.plan.host_names[0]
        printed = [one.text for one in islice(context.places()[line.job.place].logs(handle, host), 100_000)]
    except TpukitError as error:
        return str(error)
    return plain(" ".join(printed[-50:])[-person.settings.show_length :])


def _print(made: FittedTable) -> None:
    from tpukit.report import tables

    if made.row_count:
        tables.console().print(made)


def _json_of(line: Line) -> dict[str, Any]:
    import msgspec

    from tpukit import report

    return {**msgspec.to_builtins(line.window), "depth": line.depth, "record": line.job and report.job_json(line.job)}
