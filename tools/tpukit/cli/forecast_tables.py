"""Predictions of starts as text and as plain data."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from tpukit.teams.forecast.outlook import Outlook
    from tpukit.teams.forecast.predict import Prediction, Start


def document(start: Start | None) -> dict[str, Any] | None:
    """Return a range for `--json`. Times are ISO 8601; null: later than the simulated days."""
    from tpukit.jobs import report

    if start is None:
        return None

    def moment(at: float) -> str | None:
        return None if math.isinf(at) else report.iso(at)

    return {
        "soonest": moment(start.soonest),
        "likely": moment(start.likely),
        "latest": moment(start.latest),
        "ended_jobs_like_it": start.alike,
    }


def say_when(outlook: Outlook, prediction: Prediction, name: str) -> None:
    """Print when a job would start, and which jobs it would evict at once."""
    from tpukit.core.quantities import counted, duration
    from tpukit.jobs import report
    from tpukit.teams.forecast.words import in_words

    seen, start = outlook.picture.jobs[name], prediction.starts.get(name)
    if seen.why_not or start is None:
        click.echo(f"no prediction: {seen.why_not or 'Kueue does not consider it'}", err=True)
        return
    text = in_words(start, outlook.now)
    if not math.isinf(start.likely) and start.likely > outlook.now:
        text += f"; most likely in {duration(start.likely - outlook.now)}, at {report.clock_time(start.likely)}"
    click.echo(f"starts {text}")
    evicted = [change.entry.id for change in prediction.now if change.by == name]
    if evicted:
        click.echo(f"it evicts {', '.join(evicted)}")
    click.echo(note(start.alike), err=True)
    running = outlook.durations.known(seen.like)
    if running:
        click.echo(f"durations are drawn from {counted(running, 'ended job')} like it", err=True)


def note(alike: int) -> str:
    if alike:
        return "the range should hold in 80 % of cases; jobs sent later may have a higher priority"
    return "no job has ended here yet: the range assumes jobs of a minute to three days"


def compared(before: Prediction, after: Prediction, names: Sequence[str], now: float) -> list[tuple[str, str, str]]:
    """Return the job, its start as things are, and its start then."""
    from tpukit.teams.forecast.words import in_words

    def said(start: Start | None) -> str:
        return in_words(start, now) if start else "-"

    return [(name, said(before.starts.get(name)), said(after.starts.get(name))) for name in names]


def evictions(prediction: Prediction) -> Mapping[str, str]:
    """Return the jobs that lose their slices at once, with the jobs that take them."""
    return {change.entry.id: change.by for change in prediction.now if change.by}
