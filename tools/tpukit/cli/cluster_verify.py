"""`tpu cluster verify`: test that a cluster does what its plan promises."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit.cli.output import check_writable
from tpukit.core.errors import Invalid, Problem

if TYPE_CHECKING:
    from tpukit.catalogue import Slice
    from tpukit.cluster.verify.checks import Network, Result


@click.command("verify")
@click.option("--pool", default="", metavar="NAME", help="Verify this pool only (default: all, and two together).")
@click.option("--team", default="", metavar="TEAM", help="Team that sends the jobs (default: your setting team).")
@click.option(
    "--image", default="", metavar="IMAGE", help="Image of the jobs, with tpukit and JAX (default: your setting image)."
)
@click.option("--timeout", default="15m", show_default=True, metavar="TIME", help="Longest time for a round of jobs.")
@click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
@click.option("--junit", type=click.Path(path_type=Path), help="Write the verdicts as JUnit XML to this file.")
def verify(pool: str, team: str, image: str, timeout: str, as_json: bool, junit: Path | None) -> None:
    """Measure each pool with small jobs, and compare with what it should reach.

    Sends one job to each pool of the cluster that kubectl would use, and then one over two slices of the same kind, as
    the team and with its account. Each host measures its chips, the memory that it may lock, the bandwidth between
    chips and between slices, the bucket, the start of its image, TensorBoard, its log, the notice before it is stopped,
    and its clock. The jobs hold the slices until all hosts have reported, and are stopped then.

    A check that could not be measured is "not seen", with the reason. The table goes to stdout, progress and what
    changed since the last verification to stderr. Exits 0 when no check failed, 1 when a check failed or a pool
    measured nothing, 2 when an option is wrong.

    \b
    Examples:
      tpu cluster verify
      tpu cluster verify --pool tpu-node-pool-0
      tpu cluster verify --team research --junit verify.xml     in CI
    """
    from tpukit.cli import context
    from tpukit.cluster.verify import comparison, kept, report, running
    from tpukit.core import paths
    from tpukit.jobs.spec import settings as own
    from tpukit.places.gke import GkePlace

    seconds = _seconds(timeout)
    if junit:
        check_writable("--junit", junit)
    settings = own.load()
    place = context.places()[GkePlace.name]
    assert isinstance(place, GkePlace)
    name = place.clusters.current()
    cluster = place.clusters.open(name)
    team = team or settings.team
    request = running.Request(settings, team, image, seconds, running.access_of(cluster, team))
    began = context.CLOCK.monotonic()
    results = running.run(context.session(), cluster, request, _network, context.warn, pool=pool)
    took, at = context.CLOCK.monotonic() - began, context.CLOCK.now()

    last = kept.Kept(paths.state(), name.uid or name.server)
    _, before = last.read()
    changes = comparison.changes(kept.comparable(before, results, partial=bool(pool)), results) if before else []
    last.write(at, kept.merged(before, results, partial=bool(pool)))
    if as_json:
        context.print_json(report.to_json(name.context, at, results, changes))
    else:
        _show(results)
    for line in changes:
        context.warn(f"since the last verification: {line}")
    if junit:
        try:
            junit.write_text(report.to_junit(name.context, results, took), encoding="utf-8")
        except OSError as error:
            raise Invalid(
                f"the report could not be written: {error}", hint="make room, or name another file"
            ) from error
    if not report.passed(results):
        sys.exit(1)


def _network(shape: Slice) -> Network:
    from tpukit.cluster.verify.checks import Network
    from tpukit.fit import chips

    found = chips.of(shape)
    return Network(found.ici_bandwidth, found.dcn_bandwidth)


def _show(results: list[Result]) -> None:
    from tpukit.cluster.verify import report
    from tpukit.jobs.report import tables
    from tpukit.jobs.report.layout import FittedTable, TableField, plain

    styles = {"passed": "green", "failed": "red", "not seen": "yellow"}
    fields = [
        TableField("pool", [one.target for one in results]),
        TableField("check", [one.check for one in results]),
        TableField("value", [report.amount(one.value, one.unit) for one in results]),
        TableField("limit", [report.amount(one.limit, one.unit) for one in results], drop=1),
        TableField("verdict", [one.state for one in results], styles=[styles[one.state] for one in results]),
    ]
    texts = [plain(report.words(one)) for one in results]
    tables.console().print(FittedTable(fields, heading="why, and what to do", texts=texts))


def _seconds(timeout: str) -> float:
    from tpukit.jobs.spec import durations

    try:
        seconds = float(durations.parse(timeout))
    except ValueError as error:
        raise Invalid(Problem("--timeout", f"{timeout!r} is not a duration", "write 15m, or 90s")) from error
    if seconds < 1:
        raise Invalid(Problem("--timeout", f"{timeout!r} is shorter than 1 s", "write 15m, or omit it"))
    return seconds
