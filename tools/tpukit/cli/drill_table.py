"""Terminal output of `tpu drill`."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tpukit.core.quantities import counted
from tpukit.drill.costs import HOURS_A_MONTH
from tpukit.jobs import report

if TYPE_CHECKING:
    from rich.table import Table

    from tpukit.drill.costs import Costs
    from tpukit.drill.engine import Drill, Progress


NOT_WRAPPED = 2000
"""Columns of output outside a terminal."""


def say(progress: Progress) -> None:
    """Print a line on stderr as each run starts and ends.

    The table comes only after the last run, and a drill may be stopped before that.
    """
    loss, result = progress.loss, progress.result
    if loss is None:
        text = "repeating unbroken runs, because their values differ" if progress.count else "the unbroken run"
    elif result is None:
        text = f"{progress.number} of {progress.count}  {loss.name}: {loss}"
    else:
        why = "" if result.verdict.word == "exact" else f": {result.verdict.text}"
        text = f"    {result.verdict.word} ({result.run.seconds:.1f} s){why}"
    with suppress(OSError):
        click.echo(text, err=True)


def show(drill: Drill) -> None:
    import sys

    from rich.console import Console
    from rich.padding import Padding

    from tpukit.drill.advice import TEXT
    from tpukit.drill.verdicts import Word

    console = Console(highlight=False, width=None if sys.stdout.isatty() else NOT_WRAPPED)

    def line(text: str, indent: int = 0) -> None:
        console.print(Padding(text, (0, 0, 0, indent), expand=False), markup=False)

    console.print(_table(drill))
    for one in drill.results:
        if one.verdict.word is not Word.EXACT:
            console.print()
            line(f"{one.verdict.loss.name}: {one.verdict.loss}")
            line(one.verdict.text, 2)
            for host, tail in one.run.tails.items():
                line(f"the end of the log of host {host}:", 2)
                line(tail, 4)
    if drill.causes:
        console.print()
        for cause in drill.causes:
            names = [one.verdict.loss.name for one in drill.results if cause in one.causes]
            names += ["the unbroken run"] if any(one.cause is cause for one in drill.findings) else []
            line(f"likely: {cause} ({', '.join(names)})")
            line(TEXT[cause], 2)
    console.print()
    for text in summary(drill):
        line(text)


def _table(drill: Drill) -> Table:
    from rich.table import Table

    from tpukit.drill.verdicts import Word

    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("loss", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    for heading in ("lost at", "went on at", "steps lost", "back after"):
        table.add_column(heading, justify="right")
    for one in drill.results:
        verdict = one.verdict
        style = "green" if verdict.word is Word.EXACT else "yellow" if verdict.word is Word.NOT_STRUCK else "red"
        table.add_row(
            verdict.loss.name,
            f"[{style}]{verdict.word}[/]",
            _count(verdict.lost_at),
            _count(verdict.resumed_at),
            _count(verdict.steps_lost),
            seconds(verdict.back_seconds),
        )
    for name, _ in drill.left_out:
        table.add_row(name, "[dim]not tried[/]", *["-"] * 4)
    return table


def summary(drill: Drill) -> list[str]:
    """Return the verdict on the program, and the cost of its losses."""
    from tpukit.drill.verdicts import Word

    tried = len(drill.results)
    exact = sum(1 for one in drill.results if one.verdict.word is Word.EXACT)
    lines = [f"{drill.job}: {drill.word or 'nothing was tried'}; {exact} of {tried} losses exact, seed {drill.seed}"]
    if drill.noise.most:
        lines.append(
            f"runs without a loss differ by up to {drill.noise.most:.1g}; {drill.noise.tolerance:.1g} is allowed"
        )
    lines += [f"{one.word}: {one.text}" for one in drill.findings]
    reasons = dict.fromkeys(why for _, why in drill.left_out)
    lines += [f"not tried: {', '.join(name for name, of in drill.left_out if of == why)}: {why}" for why in reasons]
    return lines + cost_lines(drill.costs)


def cost_lines(costs: Costs) -> list[str]:
    lines = []
    if costs.save_bytes is not None:
        held = ""
        if costs.held_seconds is not None and costs.held_error is not None:
            held = f", holds training up for {seconds(costs.held_seconds)} ± {seconds(costs.held_error)}"
        lines.append(f"a save: {size(costs.save_bytes)} in {seconds(costs.save_seconds)}{held}")
    if costs.back_seconds is not None and costs.share_lost is not None:
        at = f"at {costs.losses_per_day:g} {'loss' if costs.losses_per_day == 1 else 'losses'} a day"
        price = (
            f"{costs.usd_lost_per_month:,.0f} of {costs.usd_per_hour * HOURS_A_MONTH:,.0f} USD a month "
            f"({costs.price_note})"
            if costs.usd_lost_per_month is not None and costs.usd_per_hour is not None
            else f"price unknown: {costs.price_note}"
        )
        lines.append(f"{at}: {costs.share_lost:.1%} of the time is lost; {price}")
    if costs.best_every is not None and costs.best_error is not None:
        every = f"; today it saves every {seconds(costs.save_every)}" if costs.save_every else ""
        steps = f" ({counted(costs.best_steps, 'step')})" if costs.best_steps else ""
        best = f"{report.duration(costs.best_every)} ± {report.duration(costs.best_error)}"
        lines.append(f"the cheapest interval would be one save every {best}{steps}{every}")
    if lines:
        lines.append("times were measured on this machine; times on TPUs differ")
    return lines


def seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"


def size(count: int) -> str:
    amount = float(count)
    for unit in ("B", "kB", "MB", "GB"):
        if amount < 1000:
            return f"{amount:.0f} {unit}" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1000
    return f"{amount:.1f} TB"


def _count(value: int | None) -> str:
    return "-" if value is None else report.count(value)
