"""`tpu job check`: a snapshot of all jobs of a user, and functions shared with the monitor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli.who import user_name, user_option

if TYPE_CHECKING:
    from tpukit.jobs.records import Job
    from tpukit.jobs.report.layout import FittedTable
    from tpukit.sharing.overview import Line

READERS = 8
NARROW = 120
MOST_LINES, LEAST_BYTES = 50, 4096
show_option = click.option(
    "--show",
    default="",
    help="Fields to show: w window, d directory, t TPU, s state, v output (default: your settings).",
)


@click.command()
@user_option
@show_option
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def check(user: str, show: str, as_json: bool) -> None:
    """Show all jobs of a user once: windows, children below their parents."""
    from tpukit.cli import context, unattended
    from tpukit.sharing import overview, users

    person = users.get(context.store(), user_name(user))
    lines = read(person.name)
    if as_json:
        context.print_json([json_of(line) for line in lines])
        return
    if not lines:
        click.echo(f"{person.name} has no windows; `tpu job start TPU --user {person.name}` opens one", err=True)
        return
    letters = overview.shown(person.settings, show)
    print_table(table(lines, letters, outputs(wanting_output(lines, letters), person.settings.show_length)))
    click.echo(overview.counts(lines), err=True)
    unattended.say([line.job for line in lines if line.job])


def read(user: str) -> list[Line]:
    from tpukit.cli import context
    from tpukit.jobs.use_cases import looking
    from tpukit.sharing import overview, windows

    listed = windows.of_user(context.store(), user)
    jobs = jobs_by_id([window.job for window in listed])
    seen = {job.id: job for job in looking.as_seen_by_places(context.session(), list(jobs.values()))}
    return overview.lines(listed, seen)


def table(
    lines: Sequence[Line], letters: str, output: Mapping[str, Sequence[str]], *, narrow: bool = False
) -> FittedTable:
    """Return the table of jobs. `output`: their last lines, by job. `narrow`: TPU names without the group's prefix."""
    from tpukit.cli import context
    from tpukit.jobs.report.layout import FittedTable, TableField, plain
    from tpukit.jobs.report.tables import STYLES

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
    printed = [plain(" ".join(output.get(line.window.job, ()))) for line in lines]
    texts = [" | ".join(filter(None, (plain(line.says), text))) for line, text in zip(lines, printed, strict=True)]
    return FittedTable(chosen, heading="message", texts=texts if "s" in letters or "v" in letters else ())


def wanting_output(lines: Sequence[Line], letters: str) -> list[Job]:
    """Return the jobs whose output to show: all if requested, else the newest few without progress in their record.

    The number is limited because output comes from the hosts.
    """
    if "v" in letters:
        return [line.job for line in lines if line.job]
    return [line.job for line in lines if line.job and line.unsure][-READERS:] if "s" in letters else []


def outputs(jobs: Sequence[Job], length: int) -> dict[str, Sequence[str]]:
    """Return the last lines of each job's first host, limited to about `length` characters."""
    from concurrent.futures import ThreadPoolExecutor

    if not jobs:
        return {}
    with ThreadPoolExecutor(min(READERS, len(jobs))) as pool:
        return dict(zip([job.id for job in jobs], pool.map(lambda job: _output(job, length), jobs), strict=True))


def _age(job: Job | None, now: float) -> str:
    """Return the age, with seconds only in the first minute, so that fewer lines change on each refresh."""
    from tpukit.jobs import report

    words = report.elapsed(job.created, job.ended or now) if job else "-"
    return words.partition("m ")[0] + "m" if "m " in words else words


def _short(lines: Sequence[Line]) -> list[str]:
    from tpukit.sharing import tpu_names

    parsed = [tpu_names.parse_tpu(line.window.tpu) for line in lines]
    return [one.short if one else line.window.tpu for one, line in zip(parsed, lines, strict=True)]


def jobs_by_id(job_ids: Sequence[str]) -> dict[str, Job]:
    """Return the jobs that exist, in parallel from a store on a network. Listing would read the jobs of all users."""
    from tpukit.cli import context
    from tpukit.core.errors import TpukitError
    from tpukit.jobs.records import JOBS

    store, wanted = context.store(), list(dict.fromkeys(job_ids))

    def read(job_id: str) -> Job | None:
        try:
            return store.get(JOBS, job_id).value
        except TpukitError:  # removed, or written by a newer version
            return None

    if len(wanted) > READERS and "://" in store.address:
        from concurrent.futures import ThreadPoolExecutor

        with ThreadPoolExecutor(READERS) as pool:
            jobs = list(pool.map(read, wanted))
    else:
        jobs = [read(job_id) for job_id in wanted]
    return {job.id: job for job in jobs if job is not None}


def _output(job: Job, length: int) -> Sequence[str]:
    from tpukit.cli import context
    from tpukit.core.errors import TpukitError
    from tpukit.jobs.report.layout import plain
    from tpukit.places.base import Handle

    if not job.attempts or job.place not in context.places():
        return ()
    try:
        handle = Handle.of(job)
        size = max(LEAST_BYTES, 4 * length)  # a character of UTF-8 has up to four bytes
        printed = context.places()[job.place].tail(handle, handle.plan.host_names[0], size)
        last = [plain(text) for text in printed[-MOST_LINES:]]
    except TpukitError as error:
        return (plain(error),)
    while len(last) > 1 and sum(map(len, last)) > length:
        last.pop(0)
    return [line[-length:] for line in last]


def print_table(made: FittedTable) -> None:
    from tpukit.jobs.report import tables

    if made.row_count:
        tables.console().print(made)


def json_of(line: Line) -> dict[str, Any]:
    import msgspec

    from tpukit.jobs import report

    return {**msgspec.to_builtins(line.window), "depth": line.depth, "record": line.job and report.job_json(line.job)}
