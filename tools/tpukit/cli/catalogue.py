"""`tpu catalogue`: TPU slices and their parts."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tpukit import catalogue
from tpukit.catalogue import prices
from tpukit.core.errors import NotFound

if TYPE_CHECKING:
    from rich.table import Table


@click.command("catalogue")
@click.argument("filter_", metavar="[FILTER]", default="")
@click.option("--json", "as_json", is_flag=True, help="Print a list of objects instead of a table.")
def command(filter_: str, as_json: bool) -> None:
    """List TPU slices: names, shapes, machine types, figures per chip, prices, zones.

    FILTER is a name, generation, topology, machine type or zone, or a part of one.

    \b
    Examples:
      tpu catalogue v5e                  every v5e slice
      tpu catalogue 4x4x4                every slice of that shape
      tpu catalogue us-central2-b        what a zone is known to have
      tpu catalogue v4-32 --json         all that is known of one slice
    """
    found = catalogue.matching(filter_)
    if not found:
        near = ", ".join(catalogue.nearest(filter_))
        hint = f"near it are {near}" if near else "`tpu catalogue` without a filter lists them all"
        raise NotFound(f"no slice matches {filter_!r}", hint=hint)
    if as_json:
        import json

        rows = [asdict(slice_) | {"prices": prices.listed(slice_, _zones(slice_, filter_))} for slice_ in found]
        click.echo(json.dumps(rows, indent=2))
        return
    from rich.console import Console

    # Without a terminal (a file, grep), a row stays on one line.
    console = Console() if Console().is_terminal else Console(width=200)
    console.print(_table(found, filter_))
    count = "1 slice" if len(found) == 1 else f"{len(found)} slices"
    click.echo(
        f"{count}. TFLOP/s (bf16) and HBM are per chip; USD/h is the list price of a slice on demand, over its zones "
        "(--json has spot and the others, with dates); zones are those known to offer it, which may be out of stock.",
        err=True,
    )
    if len({s.name for s in found}) < len(found):
        click.echo(
            "Where two rows have one name, the first is the default; for the other, name its machine type.", err=True
        )


def _zones(slice_: catalogue.Slice, filter_: str) -> tuple[str, ...]:
    """Return the zones to take prices from: the one zone if the filter names one."""
    zone = filter_.strip().lower()
    return (zone,) if zone in slice_.zones else slice_.zones


def _on_demand(slice_: catalogue.Slice, filter_: str) -> str:
    """Return the range of prices over the zones, cheapest first, or `?` if no price is known."""
    amounts = [amount.usd for zone in _zones(slice_, filter_) if (amount := prices.price(slice_, zone))]
    return "–".join(dict.fromkeys(f"{usd:.2f}" for usd in (min(amounts), max(amounts)))) if amounts else "?"


def _table(found: list[catalogue.Slice], filter_: str) -> Table:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for heading in ("name", "alias", "topology"):
        table.add_column(heading, no_wrap=True)
    for heading in ("chips", "hosts"):
        table.add_column(heading, no_wrap=True, justify="right")
    table.add_column("machine type", no_wrap=True)
    for heading in ("TFLOP/s", "HBM GiB", "USD/h"):
        table.add_column(heading, no_wrap=True, justify="right")
    table.add_column("zones")
    for s in found:
        figures = (f"{s.tflops_bf16:g}", f"{s.hbm_gib:g}", _on_demand(s, filter_))
        size = (str(s.chips), str(s.hosts))
        machine = s.machine_type or "not on GKE"
        table.add_row(s.name, ", ".join(s.aliases), s.topology, *size, machine, *figures, " ".join(s.zones))
    return table
