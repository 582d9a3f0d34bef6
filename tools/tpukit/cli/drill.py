"""`tpu drill`: test that a job survives failures."""

from __future__ import annotations

import math
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.cli.output import check_writable
from tpukit.cli.plan_view import set_option
from tpukit.core.errors import Invalid, Problem

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpukit.drill.engine import Drill
    from tpukit.drill.sites import Site


@click.command("drill")
@click.argument("file", type=click.Path(path_type=Path))
@set_option
@click.option("--place", default="local", show_default=True, help="local, or gke in a sandbox of this machine.")
@click.option("--only", "only", multiple=True, metavar="LOSS", help="Only losses that begin so; repeatable.")
@click.option("--seed", default=0, show_default=True, help="Another one strikes at other steps.")
@click.option("--budget", metavar="TIME", default="", help="Time for all of it (10m): the most telling first.")
@click.option("--require", type=click.Choice(["exact"]), help="Exit 1 unless every loss got this verdict.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--html", type=click.Path(path_type=Path), help="Write a report with plots to this file.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit XML to this file.")
@click.option(
    "--losses-per-day", default=1.0, show_default=True, help="Preemptions a day for which the cost is estimated."
)
@click.option("--zone", default="", help="Zone to take prices from (default: the cheapest one with the job's slice).")
@click.option("--folder", type=click.Path(path_type=Path), help="Keep logs and checkpoints of all runs there.")
def command(
    file: Path,
    sets: tuple[str, ...],
    place: str,
    only: tuple[str, ...],
    seed: int,
    budget: str,
    require: str | None,
    as_json: bool,
    html: Path | None,
    junit: Path | None,
    losses_per_day: float,
    zone: str,
    folder: Path | None,
) -> None:
    """Run the job in FILE unbroken, then again under one loss at a time, and compare.

    The runs are real ones on simulated slices of this machine, or with --place gke in the cluster of a sandbox, each in
    a folder of its own: nothing of the job's own workdir is touched. The table goes to stdout, progress to stderr.
    Exits 0 when all was tried, 1 when --require was not met, 2 when the job cannot be drilled.

    \b
    Examples:
      tpu drill job.yaml                                 every loss
      tpu drill job.yaml --only kill --only term         those that begin so
      tpu drill job.yaml --budget 10m --html report.html
      tpu drill job.yaml --require exact --junit drill.xml      in CI
      tpu sandbox shell tpu drill gke.yaml --place gke   in the cluster of a sandbox
    """
    from tpukit.cli import context, drill_table, fit
    from tpukit.core import paths
    from tpukit.drill import engine
    from tpukit.jobs.use_cases import submission

    submission.check_place(place)
    make_site = _site(place, retain=folder is not None)
    seconds = _seconds(budget)
    _check_numbers(losses_per_day)
    for option, file_to_write in (("--html", html), ("--junit", junit)):
        if file_to_write:
            check_writable(option, file_to_write)
    _check_folder(folder)
    plan = submission.make_plan(file, sets, place)
    fitted = fit.last(plan)
    request = engine.Request(plan, seed, only, seconds, losses_per_day, zone, retain=folder is not None)
    with engine.folder(paths.data() / "drills", folder) as path:

        def tried(so_far: Drill) -> None:
            with suppress(OSError):  # a later report may find space again
                _report(so_far, html, junit, fitted)

        result = engine.drill(request, make_site(path), path, context.CLOCK, drill_table.say, tried)
    unwritten: OSError | None = None
    try:
        _report(result, html, junit, fitted)
    except OSError as error:
        unwritten = error
    if as_json:
        from tpukit.drill import json_document

        context.print_json({**json_document.to_json(result), "fit": fitted or None})
    else:
        drill_table.show(result)
        if fitted:
            click.echo(fitted)
    if unwritten:
        raise Invalid(f"the report could not be written: {unwritten}", hint="make room, or name another file")
    if result.stopped:
        sys.exit(130 if isinstance(result.stopped, KeyboardInterrupt) else 1)
    words = [*(one.verdict.word for one in result.results), *(one.word for one in result.findings)]
    if require and (not result.results or any(word != require for word in words)):
        sys.exit(1)


def _site(place: str, *, retain: bool) -> Callable[[Path], Site]:
    """Return a function that creates the drill's site in a folder.

    Raise Invalid for other places: losses hit only processes and files of this machine.
    """
    from tpukit.cli import context

    can = context.places()[place].capabilities
    if can.uses_this_machine:
        from tpukit.drill.sites import LocalSite

        return lambda path: LocalSite(path, context.CLOCK)
    if not can.drives_itself:
        hint = "leave --place out; `tpu sandbox faults vm` loses TPU VMs of a sandbox under a job of `tpu run`"
        raise Invalid(Problem("--place", f"jobs cannot be drilled on {place}", hint))
    from tpubox.box import job_hosts
    from tpukit import kube
    from tpukit.drill.gke_site import GkeSite

    current = kube.current_context()
    found = next((one for one in kube.contexts() if one.name == current), None)
    sandbox = job_hosts.of_context(found) if found else None
    if sandbox is None:
        where = found.server if found else "this cluster"
        what = f"{where} is no sandbox of this machine, and hosts are lost and checkpoints spoilt nowhere else"
        hint = "`tpu sandbox up`, then `tpu sandbox shell tpu drill ...`; or leave --place out"
        raise Invalid(Problem("--place", what, hint))
    return lambda path: GkeSite(path, context.CLOCK, job_hosts.Hosts(sandbox), retain)


def _report(result: Drill, html: Path | None, junit: Path | None, fitted: str) -> None:
    """Write the report files, after each loss and at the end: a drill may be killed before its last loss."""
    if html:
        from tpukit.cli import drill_table
        from tpukit.drill import page

        notes = [*drill_table.cost_lines(result.costs), *filter(None, [fitted])]
        html.write_text(page.render(result, notes), encoding="utf-8")
    if junit:
        from tpukit.drill import junit as writing

        junit.write_text(writing.render(result), encoding="utf-8")


def _check_numbers(losses_per_day: float) -> None:
    if not math.isfinite(losses_per_day) or losses_per_day < 0:
        raise Invalid(Problem("--losses-per-day", f"{losses_per_day:g} is not a rate", "write 0 or more"))


def _check_folder(path: Path | None) -> None:
    """Refuse a folder that cannot be created or written to."""
    if path is None:
        return
    path = path.absolute()
    there = next(one for one in (path, *path.parents) if one.exists())
    if not there.is_dir() or not os.access(there, os.W_OK):
        raise Invalid(Problem("--folder", f"{path} cannot be written", "name a folder that you can write to"))


def _seconds(budget: str) -> float:
    """Return the seconds of a budget; 0 if there is none."""
    from tpukit.jobs.spec import durations

    try:
        seconds = float(durations.parse(budget)) if budget else math.inf
    except ValueError as error:
        raise Invalid(Problem("--budget", f"{budget!r} is not a duration", "write 10m, or 90s")) from error
    if not seconds:
        raise Invalid(Problem("--budget", f"{budget!r} must be longer than 0 s", "write 10m, or omit it"))
    return seconds if math.isfinite(seconds) else 0.0
