"""Terminal output of `tpu fit`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tpukit.fit.check import Report, Tried
    from tpukit.fit.estimate import Estimate
    from tpukit.fit.memory import Memory
    from tpukit.fit.shapes import Shape
    from tpukit.fit.whole_run import Length, Row

_GIB = 2**30


def show(report: Report) -> None:
    for line in lines(report):
        click.echo(line)


def compare(rows: Sequence[Row], excluded: Mapping[Shape, Shape], length: Length) -> None:
    """Print a table of one job on several shapes, the cheapest that fits first. Times and costs are estimates."""
    import sys

    from rich.console import Console
    from rich.table import Table

    from tpukit.fit import page, whole_run

    table = Table(box=None, pad_edge=False, show_edge=False)
    for name in ("slices", "chips", "verdict", "peak a chip", "roofline", "bound", "cycles", "MFU", "hours", "USD"):
        table.add_column(name, no_wrap=True)
    for one in rows:
        guess, held = one.report.estimate, one.report.memory
        table.add_row(
            str(one.shape),
            str(one.shape.chips),
            one.report.verdict,
            f"{_size(held.peak)} ({held.peak / held.available:.0%})" if held else "",
            _time(guess.roofline_seconds) if guess else "",
            guess.bound if guess else "",
            _time(guess.compiler_seconds) if guess and guess.compiler_seconds else "",
            f"{guess.mfu:.1%}" if guess else "",
            f"{one.hours:,.3g}" if one.hours is not None else "",
            f"{one.usd:,.2f}" if one.usd is not None else "",
        )
    Console(highlight=False, width=None if sys.stdout.isatty() else 2000).print(table)
    for one in rows:
        for finding in one.report.findings:
            if finding.stops:
                click.echo(f"{one.shape}: {finding.kind}: {finding.text}")
    for small, why in excluded.items():
        click.echo(f"{small}: not compiled, smaller than {why}, which does not fit")
    click.echo(f"The run has {length}. {page.ESTIMATES}")
    if length.tokens is None and whole_run.batches_differ(rows):
        click.echo(page.BATCHES)


def line(report: Report) -> str:
    """Return a report in one line."""
    parts = [f"{report.slices} x {report.slice}: {report.verdict}"]
    if report.memory:
        parts.append(f"{_size(report.memory.peak)} of {_size(report.memory.available)} a chip")
    if report.estimate and report.can_run:
        parts.append(f"{_time(report.estimate.roofline_seconds)} a step by roofline")
    return f"tpu fit: {', '.join(parts)}"


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
    if report.tried:
        yield from _rows("tried", [(one.kind, _tried(one)) for one in report.tried])
    versions = ", ".join(f"{name} {version}" for name, version in report.versions.items())
    yield f"compiled   by {versions} in {report.seconds:.0f} s; nothing has run on a TPU"


def _tried(one: Tried) -> str:
    parts = [one.verdict]
    if one.peak is not None and one.available is not None:
        parts.append(f"{_size(one.peak)} of {_size(one.available)} a chip")
    if one.verdict == "fits" and one.step_seconds is not None:
        parts.append(f"{_time(one.step_seconds)} a step")
    if one.verdict == "fits" and one.usd_per_step is not None:
        parts.append(f"${one.usd_per_step:.2g} a step")
    return f"{one.what}: {', '.join(parts)}"


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
