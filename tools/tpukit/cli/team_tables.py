"""Output of `tpu team`: teams, queues, jobs and changes, as tables and as JSON."""

from __future__ import annotations

import json
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import click

from tpukit.core.quantities import duration
from tpukit.teams import naming, quotas, settling
from tpukit.teams.queue_rows import JobRow, QueueRow
from tpukit.teams.registry import Change
from tpukit.teams.team import Team

_NARROWEST = 40
"""Columns that a text next to a table needs; with fewer it is printed below its row."""


def print_teams(teams: Sequence[Team], rows: Sequence[JobRow]) -> None:
    if not teams:
        click.echo("no teams yet; `tpu team add NAME` creates one", err=True)
        return
    found = []
    for team in teams:
        states = [row.state for row in rows if row.team == team.name]
        runs = states.count("runs")
        found.append(
            (team.name, _quota(team), _borrow(team), str(runs), str(len(states) - runs), str(len(team.members)))
        )
    _print(("team", "quota", "may borrow", "runs", "waits", "members"), found)


def print_team(team: Team, account: str, rows: Sequence[JobRow]) -> None:
    shared = "" if team.quota else ", shared with all teams without a quota"
    google = f", and act as {team.email} on Google Cloud" if team.email else ""
    facts = {
        "team": team.name,
        "queue": f"{team.queue}{shared}",
        "quota": _quota(team),
        "may borrow": _borrow(team),
        "members": _members(team),
        "pods run as": f"{account}{google}",
        "may run root": _root(team),
        "may reach": _egress(team),
    }
    for what, value in facts.items():
        click.echo(f"{what:13}{value}")
    click.echo()
    print_jobs(rows)


def print_queues(rows: Sequence[QueueRow]) -> None:
    found = [
        (
            *(row.queue, row.tpu, row.own, row.used, row.borrowed, row.limit),
            "" if row.waiting is None else str(row.waiting),
        )
        for row in rows
    ]
    _print(("queue", "tpu", "own", "used", "borrowed", "may borrow", "waits"), found)
    click.echo()


def print_jobs(rows: Sequence[JobRow]) -> None:
    if not rows:
        click.echo("no job runs or waits", err=True)
        return
    now = datetime.now(UTC)

    def age(since: str) -> str:
        return duration(max(0.0, (now - datetime.fromisoformat(since)).total_seconds()))

    headings = ["#", "team", "job", "state", "for", "priority", "tpu", "queue", "why"]
    found = [
        [str(row.place or ""), row.team, row.job, row.state, age(row.since), row.priority, row.tpu, row.queue, row.why]
        for row in rows
    ]
    if any(row.eviction_usd is not None for row in rows):
        headings.insert(5, "if evicted")
        for row, cells in zip(rows, found, strict=True):
            cells.insert(5, _eviction(row))
    _print(headings, found, text=True, drop=("queue", "priority", "#", "tpu", "for", "if evicted"))


def _eviction(row: JobRow) -> str:
    if row.eviction_usd is None:
        return ""
    return f"{row.eviction_usd:,.2f} USD, {duration(row.unsaved_s or 0.0)}"


def print_change(change: Change, *, dry_run: bool) -> None:
    before, after = change.before, change.after
    would = "would be" if dry_run else "is"
    done = f"{would} made" if before is None else f"{would} changed" if before != after else "is already as requested"
    click.echo(f"team {after.name} {done}", err=True)
    parts = (
        *(("quota", _quota), ("may borrow", _borrow), ("members", _members), ("acts as", _email)),
        *(("programs as root", _root), ("may reach", _egress)),
    )
    for what, of in parts:
        new, old = of(after), of(before or Team(after.name))
        if new != old or (before is None and what == "quota"):
            click.echo(f"  {what}: {new}" + (f" (was {old})" if before else ""), err=True)
    if change.replaced:
        click.echo("  jobs that wait do so in the new queue; those that run borrow their slices from now on", err=True)


def print_json(value: Any) -> None:
    click.echo(json.dumps(value, indent=2))


def team_json(team: Team, rows: Iterable[JobRow]) -> dict[str, Any]:
    def slices(numbers: Mapping[str, int]) -> dict[str, int]:
        return {naming.flavor_name(flavor): count for flavor, count in numbers.items()}

    return {
        "name": team.name,
        "queue": team.queue,
        "quota": slices(team.quota),
        "borrow": None if team.borrow is None else slices(team.borrow),
        "members": list(team.members),
        "service_account": team.email or None,
        "allow_root": team.allow_root,
        "egress": list(team.egress) or None,
        "access": team.access,
        "jobs": [asdict(row) for row in rows if row.team == team.name],
    }


def print_table(headings: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    _print(headings, rows)


def warn(cluster_queues: Sequence[Mapping[str, Any]]) -> None:
    for what in quotas.overdrawn(cluster_queues):
        click.echo(f"{what}: `tpu team add` of any team sets it right", err=True)
    for what in settling.shortfalls(cluster_queues):
        click.echo(what, err=True)


def _quota(team: Team) -> str:
    return _slices(team.quota) or "shared"


def _borrow(team: Team) -> str:
    if not team.quota:
        return "-"
    return "everything unassigned" if team.borrow is None else _slices(team.borrow) or "nothing"


def _members(team: Team) -> str:
    return ", ".join(team.members) or "none"


def _root(team: Team) -> str:
    return "yes, with `root: true` in a job" if team.allow_root else "no"


def _egress(team: Team) -> str:
    return ", ".join(team.egress) or "everything"


def _email(team: Team) -> str:
    return team.email or "no Google account"


def _slices(numbers: Mapping[str, int]) -> str:
    return ", ".join(f"{count} × {naming.flavor_name(flavor)}" for flavor, count in numbers.items() if count)


def fitted(
    table: Sequence[Sequence[str]], width: int, *, text: bool = False, drop: Sequence[str] = ()
) -> list[Sequence[str]]:
    """Return the table, headings first, without the columns that do not fit. Width 0: no limit."""
    left = [*table]
    for name in drop:
        fixed = len(left[0]) - 1 if text else len(left[0])
        if not width or sum(max(len(row[column]) for row in left) + 2 for column in range(fixed)) - 2 <= width:
            break
        gone = left[0].index(name)
        left = [(*row[:gone], *row[gone + 1 :]) for row in left]
    return left


def _print(
    headings: Sequence[str], rows: Sequence[Sequence[str]], *, text: bool = False, drop: Sequence[str] = ()
) -> None:
    """Print a table without cutting names.

    Columns in `drop` are left out in this order if the terminal is too narrow. A text in the last column is wrapped
    beside the others, or below them if too narrow to read. Without a terminal (a file, grep), a row stays on one line.
    """
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    whole = fitted([headings, *rows], width, text=text, drop=drop)
    fixed = len(whole[0]) - 1 if text else len(whole[0])
    widths = [max(len(row[column]) for row in whole) for column in range(fixed)]
    margin = sum(widths) + 2 * fixed
    for number, row in enumerate(whole):
        lines = ["  ".join(cell.ljust(size) for cell, size in zip(row, widths, strict=False))]
        if text and not width:
            lines[0] += f"  {row[-1]}"
        elif text and width - margin >= _NARROWEST:
            first, *rest = textwrap.wrap(row[-1], width - margin) or [""]
            lines = [f"{lines[0]}  {first}", *(" " * margin + part for part in rest)]
        elif text and number:
            lines += [f"    {part}" for part in textwrap.wrap(row[-1], max(_NARROWEST, width - 4))]
        for line in lines:
            click.echo(click.style(line.rstrip(), dim=True) if number == 0 else line.rstrip())
