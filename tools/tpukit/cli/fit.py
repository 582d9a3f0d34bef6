"""`tpu fit`: compile a job for its TPUs on this machine."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.cli.plan_view import set_option

if TYPE_CHECKING:
    from tpukit.fit.check import Report
    from tpukit.jobs.plan import Plan


@click.command("fit")
@click.argument("file", type=click.Path(path_type=Path))
@set_option
@click.option("--try", "tries", metavar="TPU,...", default="", help="Slices to compile the job for, for comparison.")
@click.option("--slices", "counts", metavar="N,...", default="", help="Numbers of slices to compile the job for.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--timeout", default=1200.0, show_default=True, help="Seconds for the program to reach its first step.")
@click.option("--fresh", is_flag=True, help="Compile again even if nothing has changed.")
def command(
    file: Path, sets: tuple[str, ...], tries: str, counts: str, as_json: bool, timeout: float, fresh: bool
) -> None:
    """Compile the job in FILE with the real TPU compiler, without a TPU, and report whether it fits.

    The program runs unchanged up to its first step, on compile-only devices of exactly the job's slices. The report has
    the memory of a chip by what holds it, the work and traffic of a step, and estimates of its time and cost. Linux on
    x86-64 only. The first run installs the compiler into the cache folder (1.4 GB).

    \b
    Examples:
      tpu fit job.yaml
      tpu fit job.yaml --set tpu=v6e-16 --set slices=2
      tpu fit job.yaml --try v5e-16,v6e-8 --slices 1,2
      tpu fit job.yaml --json

    Exits 0 when the job fits (with --try or --slices: when one of them fits), 1 when it does not, 2 when FILE is wrong.
    """
    from tpukit.cli import context, fit_table
    from tpukit.jobs.use_cases import submission

    if tries or counts:
        plans = _plans(file, sets, tries, counts)  # refuses an invalid name before the first compile
        reports = [of(plan, timeout=timeout, fresh=fresh) for plan in plans]
        if as_json:
            context.print_json([one.to_json() for one in reports])
        else:
            fit_table.compare(reports)
        sys.exit(0 if any(one.can_run for one in reports) else 1)
    report = of(submission.make_plan(file, sets, "local"), timeout=timeout, fresh=fresh)
    if as_json:
        context.print_json(report.to_json())
    else:
        fit_table.show(report)
    sys.exit(0 if report.can_run else 1)


def _plans(file: Path, sets: tuple[str, ...], tries: str, counts: str) -> list[Plan]:
    from tpukit.jobs.use_cases import submission

    tpus = [f"tpu={name.strip()}" for name in tries.split(",") if name.strip()]
    numbers = [f"slices={number.strip()}" for number in counts.split(",") if number.strip()]
    # An empty text stands for the value in the job file.
    pairs = [(tpu, number) for tpu in tpus or [""] for number in numbers or [""]]
    return [submission.make_plan(file, (*sets, *filter(None, pair)), "local") for pair in pairs]


def of(plan: Plan, *, timeout: float = 1200.0, fresh: bool = False) -> Report:
    """Return the report of a plan, with progress on stderr."""
    from tpukit.drill import pricing
    from tpukit.fit import check

    def say(text: str) -> None:
        click.echo(text, err=True)

    return check.check(plan, pricing.per_hour, say, seconds=timeout, fresh=fresh)
