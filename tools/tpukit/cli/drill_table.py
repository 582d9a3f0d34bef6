"""What `tpu drill` shows in a terminal."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tpukit import report

if TYPE_CHECKING:
    from tpukit.drill.costs import Costs
    from tpukit.drill.engine import Drill, Result
    from tpukit.drill.losses import Loss


class Progress:
    """One line for each run, on stderr."""

    def __call__(self, name: str, loss: Loss | None, result: Result | None) -> None:
        with suppress(OSError):
            if loss is None:
                click.echo("unbroken run", err=True)
            elif result is None:
                click.echo(f"{name}: {loss}", err=True)
            else:
                click.echo(f"{name}: {result.verdict.word} ({result.run.seconds:.1f} s)", err=True)


def show(drill: Drill) -> None:
    from rich.console import Console
    from rich.table import Table

    from tpukit.drill.advice import TEXT
    from tpukit.drill.judging import Word

    console = Console(highlight=False)
    table = Table(box=None, pad_edge=False, show_edge=False)
    table.add_column("loss", no_wrap=True)
    table.add_column("verdict", overflow="fold")
    table.add_column("lost at", justify="right")
    table.add_column("went on", justify="right")
    table.add_column("lost", justify="right")
    table.add_column("back after", justify="right", no_wrap=True)
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
    console.print(table)
    bad = [one for one in drill.results if one.verdict.word is not Word.EXACT]
    for one in bad:
        console.print()
        console.print(f"[bold]{one.verdict.loss.name}[/]: {one.verdict.loss}", markup=True)
        console.print(f"  {one.verdict.text}", markup=False)
        for cause in one.causes:
            console.print(f"  likely: {cause}\n    {TEXT[cause]}", markup=False)
    console.print()
    for line in summary(drill):
        console.print(line, markup=False)


def summary(drill: Drill) -> list[str]:
    """The verdict on the program, and what its losses cost."""
    from tpukit.drill.judging import Word

    tried = len(drill.results)
    exact = sum(1 for one in drill.results if one.verdict.word is Word.EXACT)
    lines = [f"{drill.job}: {drill.word or 'nothing was tried'}; {exact} of {tried} losses exact, seed {drill.seed}"]
    if drill.noise:
        lines.append(f"two runs of it differ by up to {drill.noise:.1g} of the loss before anything is lost")
    lines += [f"not tried: {name}: {why}" for name, why in drill.left_out]
    return lines + cost_lines(drill.costs)


def cost_lines(costs: Costs) -> list[str]:
    lines = []
    if costs.save_bytes is not None:
        held = f", holds training up for {seconds(costs.held_seconds)}" if costs.held_seconds is not None else ""
        lines.append(f"a save: {size(costs.save_bytes)} in {seconds(costs.save_seconds)}{held}")
    if costs.back_seconds is not None and costs.share_lost is not None:
        at = f"at {costs.losses_per_day:g} losses a day"
        price = (
            f"{costs.usd_lost_per_hour:.4f} of {costs.usd_per_hour:.2f} USD an hour ({costs.price_note})"
            if costs.usd_lost_per_hour is not None and costs.usd_per_hour is not None
            else f"price unknown: {costs.price_note}"
        )
        lines.append(f"{at}: {costs.share_lost:.2%} of the time is lost; {price}")
    if costs.best_every is not None:
        every = f", as it is every {seconds(costs.save_every)}" if costs.save_every else ""
        steps = f" ({costs.best_steps} steps)" if costs.best_steps else ""
        lines.append(f"saving every {report.duration(costs.best_every)}{steps} would cost least{every}")
    if lines:
        lines.append("times are those of this machine; on TPUs they are others")
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
