"""Flags of `tpu fleet`, and the fleet spec from flags and a fleet file."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from tpukit.core.errors import Invalid, Problem

if TYPE_CHECKING:
    from tpukit.fleet.records import Worker
    from tpukit.fleet.wanted import Plan
    from tpukit.jobs.spec.fleet import FleetSpec

F = TypeVar("F", bound=Callable[..., Any])
EARLIER_NAME = "tpu"
"""Name of a fleet without a name, before the user's name became the default."""
file_ = click.argument("file", required=False, type=click.Path(path_type=Path))
name_ = click.option("--name", help="Name of the fleet, a label of its TPU VMs (default: your user name).")
yes_ = click.option("--yes", is_flag=True, help="Do not ask.")
adopt_ = click.option("--adopt", is_flag=True, help="Take over a fleet of another owner or store.")
json_ = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
bucket_ = click.option("--gcs-bucket", help="Bucket with datasets/ and activations/.")
interval_ = click.option(
    "--monitor-interval", type=float, default=60.0, show_default=True, help="Seconds between updates."
)
_WHERE = [
    click.option("--zones", help="Zones, separated by commas."),
    click.option("--workers-per-zone", type=int, help="TPU VMs in each zone (default: 1)."),
    click.option("--tpu-type", help="Type of the TPU VMs, a slice of one host (default: v3-8)."),
    click.option(
        "--on-demand/--spot", default=None, help="Capacity: on demand costs more and is not preempted (default: spot)."
    ),
    click.option("--stay/--move", default=None, help="Wait for hardware in its zone, or move to another (default)."),
    click.option(
        "--move-after", type=int, help="Seconds to wait for hardware before moving to another zone (default: 300)."
    ),
    click.option(
        "--unattended", help="Time without a driver after which TPU VMs delete themselves (default: 24h; 0s: never)."
    ),
    adopt_,
    name_,
]
_WORK = [
    click.option("--gcs-bucket", help="Bucket for datasets/ and activations/."),
    click.option("--dataset", multiple=True, help="JSONL file, may be .gz; repeatable."),
    click.option("--streams", type=int, help="Streams to split the dataset into (default: one for each TPU VM)."),
    click.option("--max-samples", type=int, help="Samples of each stream to use, for a test (default: all)."),
    click.option("--program", help="FILE.py:FUNCTION to run; the folder of the file is sent along."),
    click.option("--option", multiple=True, metavar="NAME=VALUE", help="Option of the program; repeatable."),
    click.option("--model", help="Short for --option model=..."),
    click.option("--requirements", help="Requirements file in the program's folder, installed on each host."),
    click.option("--shard-samples", type=int, help="Samples in each shard (default: 1000)."),
    click.option("--patience", type=int, help="Seconds without progress until a program is restarted (default: 1800)."),
    click.option(
        "--claim-seconds",
        "claim",
        type=int,
        hidden=True,
        help="Seconds until another worker may take a lost worker's stream.",
    ),
]


def where(function: F) -> F:
    """Add the options that select TPU VMs."""
    return _with(function, [file_, *_WHERE])


def work(function: F) -> F:
    """Add the options that define the work."""
    return _with(function, _WORK)


def _with(function: F, options: Sequence[Callable[[F], F]]) -> F:
    for option in reversed(options):
        function = option(function)
    return function


def spec_of(file: Path | None, words: dict[str, Any]) -> FleetSpec:
    """Return the fleet spec from the file and the flags."""
    from tpukit.jobs.spec import fleet

    durations = ("patience", "claim", "move_after")
    own = ("zones", "option", "model", "on_demand", *durations)
    given = {key: value for key, value in words.items() if value not in (None, ())}
    flags = {key: value for key, value in given.items() if key in fleet.FleetSpec.fields and key not in own}
    if "zones" in given:
        flags["zones"] = split_zones(given["zones"])
    if "on_demand" in given:
        flags["capacity"] = "on-demand" if given["on_demand"] else "spot"
    flags |= {key: f"{given[key]}s" for key in durations if key in given}
    if bad := [pair for pair in given.get("option", ()) if "=" not in pair]:
        raise Invalid([Problem("--option", f"{pair}: the value is missing", "write NAME=VALUE") for pair in bad])
    options = dict(pair.split("=", 1) for pair in given.get("option", ()))
    options |= {"model": given["model"]} if "model" in given else {}
    return fleet.load(file, {**flags, **({"options": options} if options else {})}, default_name())


def default_name() -> str:
    from tpukit.cli import context
    from tpukit.fleet import ownership

    return ownership.name_of(context.owner())


@dataclass(frozen=True, slots=True)
class Target:
    """The existing fleet that a command refers to."""

    name: str
    zones: list[str]  # zones named in the file, to search in addition to the known ones
    bucket: str | None
    spec: FleetSpec | None

    def plan(self) -> Plan | None:
        """Return the plan in its bucket, or None without a bucket or a deployment."""
        from tpukit.core.errors import NotFound
        from tpukit.fleet import wanted as plans

        try:
            return plans.load(self.name, self.bucket) if self.bucket else None
        except NotFound:
            return None


def target_of(file: Path | None, name: str | None, bucket: str | None = None) -> Target:
    spec = spec_of(file, {}) if file else None
    if spec is None:
        return Target(name or default_name(), [], bucket, None)
    return Target(name or spec.name, list(spec.zones), bucket or spec.gcs_bucket, spec)


def split_zones(text: str | None) -> list[str]:
    return [zone.strip() for zone in (text or "").split(",") if zone.strip()]


def zones_of(workers: Sequence[Worker], *more: str) -> list[str]:
    """Return the zones of these workers, of the settings, and `more`."""
    from tpukit.cli import vms

    return sorted(
        {zone for one in workers for zone in (*one.zones, one.zone)} | {vms.settings().zone or "", *more} - {""}
    )
