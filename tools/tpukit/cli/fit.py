"""`tpu fit`: compile a job for its TPUs on this machine."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.cli.plan_view import set_option

if TYPE_CHECKING:
    import threading

    from tpukit.fit.check import Report, Tried
    from tpukit.fit.comparing import Comparison
    from tpukit.fit.shapes import Shape
    from tpukit.fit.whole_run import Length
    from tpukit.jobs.plan import Plan


@click.command("fit")
@click.argument("file", type=click.Path(path_type=Path))
@set_option
@click.option("--all", "every", is_flag=True, help="Compare all generations, in sizes that double.")
@click.option("--try", "tries", metavar="TPU,...", default="", help="Slices or generations to compare: v5e-16,v6e.")
@click.option("--slices", "counts", metavar="N,...", default="", help="Numbers of slices to compare.")
@click.option("--chips", type=click.IntRange(1), help="Most chips of a compared shape (default: 256, or the job's).")
@click.option("--steps", type=click.IntRange(1), help="Steps of the whole run, for its cost (default: 1000).")
@click.option("--tokens", type=click.FloatRange(1), help="Tokens of the whole run, in place of --steps.")
@click.option("--html", type=click.Path(path_type=Path), help="Write the comparison with its chart to this file.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.option("--no-remedies", is_flag=True, help="Do not compile remedies if the job does not fit.")
@click.option("--timeout", default=1200.0, show_default=True, help="Seconds for the program to reach its first step.")
@click.option("--fresh", is_flag=True, help="Compile again even if nothing has changed.")
def command(
    file: Path,
    sets: tuple[str, ...],
    every: bool,
    tries: str,
    counts: str,
    chips: int | None,
    steps: int | None,
    tokens: float | None,
    html: Path | None,
    as_json: bool,
    no_remedies: bool,
    timeout: float,
    fresh: bool,
) -> None:
    """Compile the job in FILE with the real TPU compiler, without a TPU, and report whether it fits.

    The program runs unchanged up to its first step, on compile-only devices of exactly the job's slices. The report has
    the memory of a chip by what holds it, the work and traffic of a step, and estimates of its time and cost. Linux on
    x86-64 only. The first run installs the compiler into the cache folder (1.4 GB).

    If the job does not fit, remedies are compiled too: rematerialisation, another sharding, a smaller batch, more or
    other chips. The report says which of them fit, with what memory and time.

    --all, --try and --slices compare shapes by hours and dollars of the whole run. Bisection finds the smallest that
    fits of each generation; all larger ones are compiled too, side by side as memory allows.

    \b
    Examples:
      tpu fit job.yaml
      tpu fit job.yaml --set tpu=v6e-16 --set slices=2
      tpu fit job.yaml --try v5e-16,v6e-8 --slices 1,2
      tpu fit job.yaml --try v5e,v6e --chips 64 --steps 20000
      tpu fit job.yaml --all --html shapes.html
      tpu fit job.yaml --json

    Exits 0 when the job fits (in a comparison: on one of the shapes), 1 when it does not, 2 when FILE is wrong.
    """
    from tpukit.cli import context, fit_table
    from tpukit.core.errors import Invalid, Problem
    from tpukit.fit.whole_run import STEPS, Length
    from tpukit.jobs.use_cases import submission

    _stop_like_ctrl_c()
    plan = submission.make_plan(file, sets, "local")
    comparing = every or bool(tries or counts)
    given = {"--chips": chips, "--steps": steps, "--tokens": tokens, "--html": html}
    if not comparing and (alone := [name for name, value in given.items() if value is not None]):
        problem = "is for comparisons" if len(alone) == 1 else "are for comparisons"
        raise Invalid(Problem(", ".join(alone), problem, "add --all, --try or --slices"))
    if steps and tokens:
        raise Invalid(Problem("--steps, --tokens", "give the same length twice", "leave one out"))
    if comparing:
        if html and not html.absolute().parent.is_dir():
            raise Invalid(Problem("--html", f"there is no folder {html.parent}", "create it first"))
        length = Length(steps or STEPS, tokens)
        comparison = _comparison(plan, file, sets, every, tries, counts, chips, timeout, fresh)
        sys.exit(_compare(plan, comparison, length, html, as_json))
    report = of(plan, timeout=timeout, fresh=fresh)
    if not no_remedies:
        report = _with_remedies(plan, report, timeout, fresh)
    if as_json:
        context.print_json(report.to_json())
    else:
        fit_table.show(report)
    sys.exit(0 if report.can_run else 1)


def _stop_like_ctrl_c() -> None:
    """Treat SIGTERM and a closed terminal as Ctrl-C, so that the compiler and its files are removed."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) != signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)


def _with_remedies(plan: Plan, report: Report, timeout: float, fresh: bool) -> Report:
    """Return the report with the result of each remedy. After Ctrl-C, it has those that were finished."""
    from dataclasses import replace

    from tpukit.fit import remedies

    tried: list[Tried] = []

    def compile_for(changed: Plan, change: str) -> Report:
        return of(changed, "remedy: ", timeout=timeout, fresh=fresh, change=change)

    try:
        for one in remedies.try_out(remedies.of(plan, report), compile_for):
            tried.append(one)
            click.echo(f"tried {one.what}: {one.verdict}", err=True)
    except KeyboardInterrupt:
        click.echo("interrupted; not all remedies were tried", err=True)
    return replace(report, tried=(*tried, *remedies.untried(plan, report)))


def _comparison(
    plan: Plan,
    file: Path,
    sets: tuple[str, ...],
    every: bool,
    tries: str,
    counts: str,
    chips: int | None,
    timeout: float,
    fresh: bool,
) -> Comparison:
    from tpukit import catalogue
    from tpukit.core.errors import Invalid, Problem
    from tpukit.core.quantities import counted
    from tpukit.fit import check, environment, shapes
    from tpukit.fit.comparing import Comparison
    from tpukit.jobs.use_cases import submission

    names = [name.strip() for name in tries.split(",") if name.strip()]
    if every:
        names += dict.fromkeys(one.generation for one in catalogue.slices())
    limit = chips or max(shapes.LIMIT, plan.chips)
    ladders = shapes.ladders(
        names or [plan.slice.name], shapes.numbers(counts, "--slices") or [plan.spec.slices], limit
    )
    if not ladders:
        most = counted(limit, "chip")
        raise Invalid(Problem("--chips", f"no slice of {', '.join(names)} has at most {most} in all", "raise --chips"))
    check.refuse(plan)
    named = {catalogue.find(name).name for name in names or [plan.slice.name] if not catalogue.generation(name)}
    plans: dict[Shape, Plan] = {}
    for ladder in ladders:
        for one in ladder:
            try:
                plans[one] = submission.make_plan(file, (*sets, f"tpu={one.tpu}", f"slices={one.slices}"), "local")
            except Invalid:
                if one.tpu in named:
                    raise
                # Some generations have no multislice: --all leaves them out.
    ladders = [found for ladder in ladders if (found := tuple(one for one in ladder if one in plans))]
    environment.make(lambda text: click.echo(text, err=True))

    def compile_for(shape: Shape, stop: threading.Event) -> Report:
        return of(plans[shape], f"{shape}: ", timeout=timeout, fresh=fresh, stop=stop)

    return Comparison(ladders, plans, compile_for)


def _compare(plan: Plan, comparison: Comparison, length: Length, html: Path | None, as_json: bool) -> int:
    from tpukit.cli import context, fit_table
    from tpukit.fit import page, whole_run

    interrupted = False
    try:
        comparison.run()
    except KeyboardInterrupt:
        click.echo("interrupted; these shapes were finished:", err=True)
        interrupted = True
    rows = whole_run.rows(comparison.reports, length)
    if as_json:
        context.print_json([one.to_json() for one in rows])
    else:
        fit_table.compare(rows, comparison.excluded, length)
    if html:
        html.write_text(page.render(plan.spec.name, rows, comparison.excluded, length), encoding="utf-8")
        click.echo(f"wrote {html}", err=True)
    if interrupted:
        return 130
    return 0 if any(one.report.can_run for one in rows) else 1


def of(
    plan: Plan,
    prefix: str = "",
    *,
    timeout: float = 1200.0,
    fresh: bool = False,
    stop: threading.Event | None = None,
    change: str = "",
) -> Report:
    """Return the report of a plan, with progress on stderr."""
    from tpukit.drill import pricing
    from tpukit.fit import check

    def say(text: str) -> None:
        click.echo(f"{prefix}{text}", err=True)

    return check.check(plan, pricing.per_hour, say, seconds=timeout, fresh=fresh, stop=stop, change=change)


def last(plan: Plan) -> str:
    """Return a line about the last fit of a job, or an empty string if it was not compiled as it is now."""
    from tpukit.cli import fit_table
    from tpukit.drill import pricing
    from tpukit.fit import check

    report = check.known(plan, pricing.per_hour)
    return fit_table.line(report) if report else ""
