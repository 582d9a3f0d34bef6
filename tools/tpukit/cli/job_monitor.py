"""`tpu job monitor`: all jobs of a user, updated until stopped; on a terminal, with keys to act on them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click

from tpukit.cli.job_check import READERS, json_of, outputs, print_table, read, show_option, table, wanting_output
from tpukit.cli.who import user_name, user_option
from tpukit.core import resources

if TYPE_CHECKING:
    from tpukit.sharing.overview import Line
    from tpukit.sharing.users import User

OUTPUT_SECONDS = 15.0
"""Seconds between two reads of a job's output, except for the chosen one: each read contacts a host."""


@click.command("monitor")
@user_option
@show_option
@click.option("--interval", type=click.FloatRange(min=0.5), help="Seconds between updates (default: your settings).")
@click.option("--plain", is_flag=True, help="Print the table whenever it changes, without keys or cursor control.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON once.")
def command(user: str, show: str, interval: float | None, plain: bool, as_json: bool) -> None:
    """Follow all jobs of a user, children below their parents. Without a terminal: show them once.

    Keys: up and down choose a job, l follows its log, r resumes it, k stops it, v shows output, q leaves. Only lines
    that changed are drawn, so it can be used over a slow line; --interval makes it slower still.
    """
    from tpukit.cli import context
    from tpukit.sharing import overview, users

    person = users.get(context.store(), user_name(user))
    letters = overview.shown(person.settings, show)
    seconds = interval or float(person.settings.monitor_upd_time)
    if as_json:
        context.print_json([json_of(line) for line in read(person.name)])
    elif not sys.stdout.isatty():
        _print(person, letters)
    elif plain or not _has_textual():
        _print_changes(person, letters, seconds)
    else:
        from tpukit.cli.monitor_app import Monitor

        Monitor(Reader(person), letters, seconds, [sys.executable, "-m", "tpukit"], person.name).run()


@dataclass(frozen=True, slots=True)
class Picture:
    lines: Sequence[Line]
    output: dict[str, Sequence[str]]  # last lines of output, by job


@dataclass
class Reader:
    """Reader of the monitor's data. Not thread-safe."""

    person: User
    _output: dict[str, Sequence[str]] = field(default_factory=dict)
    _read_at: dict[str, float] = field(default_factory=dict)

    def __call__(self, letters: str, chosen: str) -> Picture:
        """Return the current state. `chosen`: id of the job whose output is needed now."""
        from tpukit.cli import context

        lines, now = read(self.person.name), context.CLOCK.monotonic()
        wanted = {job.id: job for job in wanting_output(lines, letters)}
        wanted |= {line.job.id: line.job for line in lines if line.job and line.job.id == chosen}
        stale = [
            job for job in wanted.values() if job.id == chosen or now - self._read_at.get(job.id, -1e9) > OUTPUT_SECONDS
        ]
        stale = sorted(stale, key=lambda job: (job.id != chosen, self._read_at.get(job.id, 0.0)))[:READERS]
        self._output |= outputs(stale, self.person.settings.monitor_length)
        self._read_at |= dict.fromkeys((job.id for job in stale), now)
        return Picture(lines, {name: said for name, said in self._output.items() if name in wanted})


def _has_textual() -> bool:
    from importlib.util import find_spec

    if find_spec("textual") is None:
        click.echo(
            f"the monitor reacts to no keys here; {resources.install_hint('monitor')} for one that does", err=True
        )
        return False
    return True


def _print(person: User, letters: str) -> None:
    from tpukit.cli import unattended

    lines = read(person.name)
    print_table(table(lines, letters, outputs(wanting_output(lines, letters), person.settings.show_length)))
    unattended.say([line.job for line in lines if line.job])


def _print_changes(person: User, letters: str, seconds: float) -> None:
    from tpukit.cli import context
    from tpukit.core.errors import Transient
    from tpukit.sharing import overview

    reader, last = Reader(person), None
    while True:
        try:
            picture = reader(letters, "")
        except Transient as error:
            click.echo(f"{error}; retrying", err=True)
        else:
            shown = [
                (line.window, line.state, line.says, picture.output.get(line.window.job)) for line in picture.lines
            ]
            if shown != last:
                last = shown
                click.echo(f"{person.name}: {overview.counts(picture.lines)}")
                print_table(table(picture.lines, letters, picture.output))
        context.CLOCK.sleep(seconds)
