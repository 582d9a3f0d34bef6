"""Terminal output of `tpu fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tpukit.fit.check import Report
    from tpukit.fit.estimate import Estimate
    from tpukit.fit.memory import Memory

_GIB = 2**30


def show(report: Report) -> None:
    for line in lines(report):
        click.echo(line)


def compare(reports: Sequence[Report]) -> None:
    """Print a table of one job on several slices, the cheapest that fits first. Times and costs are estimates."""
    import sys

    from rich.console import Console
    from rich.table import Table

    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in ("slices", "chips", "verdict", "peak a chip", "roofline", "bound", "cycles", "MFU", "USD a step"):
        table.add_column(name, no_wrap=True)
    for one in sorted(reports, key=_rank):
        guess, held = one.estimate, one.memory
        table.add_row(
            f"{one.slices} x {one.slice}",
            str(one.chips),
            one.verdict,
            f"{_size(held.peak)} ({held.peak / held.available:.0%})" if held else "",
            _time(guess.roofline_seconds) if guess else "",
            guess.bound if guess else "",
            _time(guess.compiler_seconds) if guess and guess.compiler_seconds else "",
            f"{guess.mfu:.1%}" if guess else "",
            f"{guess.usd_per_step:.2g}" if guess and guess.usd_per_step is not None else "",
        )
    Console(highlight=False, width=None if sys.stdout.isatty() else 2000).print(table)
    for one in reports:
        for finding in one.findings:
            if finding.stops:
                click.echo(f"{one.slices} x {one.slice}: {finding.kind}: {finding.text}")


def _rank(report: Report) -> tuple[bool, float, int]:
    cost = report.estimate.usd_per_step if report.estimate else None
    return not report.can_run, cost if cost is not None else float("inf"), report.chips


def lines(report: Report) -> Iterator[str]:
    """Yield the lines of a report."""
    where = f"{counted(report.slices, 'slice')} of {report.slice}, {counted(report.chips, 'chip')}"
    yield f"{report.job} on {where}: {report.verdict}" + (" (cached)" if report.cached else "")
    if report.step:
        yield f"step       {report.step}"
    if report.memory:
        yield from _rows("memory", _memory(report.memory))
    if report.estimate:
        yield from _rows("step", _work(report.estimate))
        yield from _rows("estimates", _estimates(report.estimate))
        if report.estimate.usd_per_step is not None or report.usd_per_hour is None:
            yield f"prices     {report.price}"
    for one in report.findings:
        yield f"{'stops' if one.stops else 'note':<10} {one.kind}: {one.text}"
        if one.line:
            yield f"           at {one.line}"
        if one.hint:
            yield f"           {one.hint}"
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"compiled   by {versions} in {report.seconds:.0f} s; nothing has run on a TPU"


def _rows(title: str, rows: list[tuple[str, str]]) -> Iterator[str]:
    width = max(len(name) for name, _ in rows)
    for number, (name, text) in enumerate(rows):
        yield f"{title if number == 0 else '':<10} {name:<{width}}  {text}"


def _memory(held: Memory) -> list[tuple[str, str]]:
    parts = {
        "parameters": held.parameters,
        "optimizer": held.optimizer,
        "other arguments": held.other_arguments,
        "temporaries and results": held.temporaries,
    }
    rows = [(name, f"{_size(size)} a chip") for name, size in parts.items()]
    share = held.peak / held.available
    return [*rows, ("peak", f"{_size(held.peak)} of {_size(held.available)} a chip ({share:.0%})")]


def _work(guess: Estimate) -> list[tuple[str, str]]:
    rows = [
        ("arithmetic", f"{_count(guess.flops)}FLOP in matmuls and kernels, over all chips"),
        ("repeated", f"{_count(guess.repeated_flops)}FLOP more, by rematerialisation"),
        ("memory traffic", f"{_size(guess.bytes_read)} a chip"),
        ("inside a slice", f"{_size(guess.inside_bytes)} leave a chip over ICI"),
        ("between slices", f"{_size(guess.between_bytes)} leave a chip over the data-centre network"),
    ]
    return [row for row in rows if row[0] != "repeated" or guess.repeated_flops]


def _estimates(guess: Estimate) -> list[tuple[str, str]]:
    times = {
        "compute": guess.compute_seconds,
        "memory": guess.memory_seconds,
        "ICI": guess.ici_seconds,
        "DCN": guess.dcn_seconds,
    }
    parts = ", ".join(f"{name} {_time(one)}" for name, one in times.items() if one is not None)
    unknown = [name for name, one in times.items() if one is None]
    if unknown:
        parts += f"; no figure known for {' and '.join(unknown)}"
    rows = [("by roofline", f"{_time(guess.roofline_seconds)} a step, bound by {guess.bound} ({parts})")]
    if guess.compiler_seconds is not None:
        rows.append(("by cycles", f"{_time(guess.compiler_seconds)} a step, the compiler's estimate of its operations"))
    mfu = f"{guess.mfu:.1%} by roofline" + (f", {guess.compiler_mfu:.1%} by cycles" if guess.compiler_mfu else "")
    rows.append(("MFU", mfu))
    if guess.tokens:
        rate = f"{guess.tokens_per_second:,.0f} a second by roofline" if guess.tokens_per_second else "unknown"
        rows.append(("tokens", f"{guess.tokens:,} a step, {rate}"))
    if guess.usd_per_step is not None:
        text = f"${guess.usd_per_step:.2g} a step"
        if guess.usd_per_billion_tokens is not None:
            text += f", ${guess.usd_per_billion_tokens:,.2f} a billion tokens"
        rows.append(("cost", f"{text}, by roofline"))
    return rows


def _size(size: float) -> str:
    for unit, name in ((_GIB, "GiB"), (2**20, "MiB"), (2**10, "KiB")):
        if size >= unit:
            return f"{size / unit:,.2f} {name}"
    return f"{size:,.0f} B"


def _count(number: float) -> str:
    for unit, name in ((1e15, "P"), (1e12, "T"), (1e9, "G"), (1e6, "M")):
        if number >= unit:
            return f"{number / unit:,.2f} {name}"
    return f"{number:,.0f} "


def _time(seconds: float) -> str:
    return (
        f"{seconds:.2f} s"
        if seconds >= 1
        else f"{seconds * 1e3:.3g} ms"
        if seconds >= 1e-3
        else f"{seconds * 1e6:.3g} µs"
    )
