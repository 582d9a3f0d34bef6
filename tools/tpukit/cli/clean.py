"""`tpu clean`: free disk space on this machine."""

from __future__ import annotations

import json
import sys
from decimal import InvalidOperation
from typing import TYPE_CHECKING

import click

from tpukit.core.errors import Invalid, Problem

if TYPE_CHECKING:
    from tpukit.jobs.housekeeping import Removal, Report


@click.command("clean")
@click.option("--older-than", default="30d", show_default=True, help="Remove files unused for at least this long.")
@click.option(
    "--keep", default="20GiB", show_default=True, help="Remove runs of ended jobs until at most this size is left."
)
@click.option(
    "--keep-code", default="2GiB", show_default=True, help="Remove staged code until at most this size is left."
)
@click.option(
    "--checkpoints", is_flag=True, help="Also checkpoints and TensorBoard data of ended jobs on this machine."
)
@click.option("--cloud", is_flag=True, help="Instead: TPU VMs and queued resources at Google that nothing uses.")
@click.option("--idle", default="1d", show_default=True, help="With --cloud: TPU VMs without a job for this long.")
@click.option("--yes", is_flag=True, help="With --cloud: do not ask before deleting.")
@click.option("--dry-run", is_flag=True, help="Print what would be removed; remove nothing.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    older_than: str,
    keep: str,
    keep_code: str,
    checkpoints: bool,
    cloud: bool,
    idle: str,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Remove staged code, logs and other files that old jobs left on this machine.

    Files that an active job needs stay. Checkpoints stay unless --checkpoints is given; those in buckets always do.

    \b
    Examples:
      tpu clean --dry-run                  what would go, and why
      tpu clean --older-than 7d            what was not used for a week
      tpu clean --keep 5GiB --checkpoints  ended jobs, until they take no more than 5 GiB
      tpu clean --cloud                    what is paid for and not used, and what ends it
    """
    from tpukit.cli import clean_cloud, context
    from tpukit.core import paths
    from tpukit.jobs import housekeeping

    if cloud:
        clean_cloud.run(_seconds(idle, "--idle"), dry_run=dry_run, yes=yes, as_json=as_json)
        return
    limits = housekeeping.Limits(
        age=_seconds(older_than), runs=_bytes("--keep", keep), code=_bytes("--keep-code", keep_code)
    )
    store = context.store()

    report = housekeeping.run(
        paths.data(),
        paths.state(),
        housekeeping.known_jobs(store),
        context.CLOCK.now(),
        limits,
        checkpoints=checkpoints,
        dry_run=dry_run,
        active=housekeeping.active_in(store),
    )
    if not dry_run:
        from tpukit.cli.serve import prune_store

        prune_store(store)
    if as_json:
        click.echo(json.dumps(_json(report, dry_run), indent=2))
    else:
        _show(report, dry_run)
    sys.exit(1 if report.failed else 0)


def _show(report: Report, dry_run: bool) -> None:
    for removal in report.removed:
        item = removal.item
        click.echo(f"{item.what:<14}  {item.name[:40]:<40}  {_size(item.bytes):>9}  {removal.reason}")
    for removal, why in report.failed:
        click.echo(f"tpu: {removal.item.path} could not be removed: {why}", err=True)
    if not report.removed:
        click.echo("nothing to remove", err=True)
        return
    click.echo(f"{'would free' if dry_run else 'freed'} {_size(report.freed)}", err=True)


def _json(report: Report, dry_run: bool) -> dict[str, object]:
    def plain(removal: Removal) -> dict[str, object]:
        item = removal.item
        return {"what": item.what, "name": item.name, "bytes": item.bytes, "reason": removal.reason}

    return {
        "dry_run": dry_run,
        "freed": report.freed,
        "removed": [plain(removal) for removal in report.removed],
        "failed": [plain(removal) | {"error": why} for removal, why in report.failed],
    }


def _seconds(text: str, option: str = "--older-than") -> float:
    from tpukit.jobs.spec import durations

    try:
        return float(durations.parse(text))
    except ValueError as error:
        raise Invalid(Problem(option, f"{text!r} is not a duration", "write 30d, 12h or 45m")) from error


def _bytes(option: str, text: str) -> int:
    from tpukit.core.quantities import amount

    try:
        number = amount(text.strip().removesuffix("B"))
    except InvalidOperation as error:
        raise Invalid(Problem(option, f"{text!r} is not a size", "write 20GiB or 500MiB")) from error
    if not number.is_finite() or number < 0:
        raise Invalid(Problem(option, f"{text!r} is not a size", "write 20GiB or 500MiB"))
    return int(number)


def _size(count: int) -> str:
    for power, unit in ((30, "GiB"), (20, "MiB"), (10, "KiB")):
        if count >= 1 << power:
            return f"{count / (1 << power):.1f} {unit}"
    return f"{count} B"
