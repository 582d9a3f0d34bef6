"""Cost of an environment by hour and month, by list prices. Items without a known price are listed, but not counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tpukit.catalogue import prices
from tpukit.catalogue.prices import HOURS_PER_MONTH, Price
from tpukit.cluster import checks
from tpukit.cluster.spec import ClusterSpec


@dataclass(frozen=True, slots=True)
class Item:
    """A number of equal things, and their hourly price together; None if unknown."""

    what: str
    price: Price | None


@dataclass(frozen=True, slots=True)
class Estimate:
    zone: str
    items: tuple[Item, ...]
    comes_and_goes: bool  # slices exist only while jobs want them

    @property
    def hour(self) -> float:
        """The hourly cost of items with a known price."""
        return sum(item.price.usd for item in self.items if item.price)

    @property
    def unknown(self) -> tuple[str, ...]:
        return tuple(item.what for item in self.items if not item.price)


def estimate(spec: ClusterSpec) -> Estimate:
    capacities = {name: str(pool["capacity"]) for name, pool in checks.pools(spec.to_json()).items()}
    pools = Counter((shape, capacities[name]) for name, shape in spec.shapes.items())
    items = []
    for (shape, capacity), count in pools.items():
        price = prices.price(shape, spec.zone, capacity)
        items.append(Item(f"{count} × {shape.name} {capacity}", price and price.times(count)))
    nodes, machine = spec.cpu_pool_node_count, spec.cpu_pool_machine_type
    price = prices.machine(machine, spec.zone)
    items += [Item(f"{nodes} × {machine}", price and price.times(nodes)), Item("GKE's fee", prices.cluster_fee())]
    return Estimate(spec.zone, tuple(items), spec.enable_tpu_autoscaling or "flex-start" in capacities.values())


def lines(found: Estimate) -> Iterator[str]:
    """Yield lines for the user to read before confirming."""
    yield f"Costs in {found.zone}, by list prices in USD without tax:"
    width = max(len(item.what) for item in found.items)
    for item in found.items:
        known = f"{item.price.usd:,.2f} an hour (as of {item.price.as_of})" if item.price else "unknown"
        note = f"; {item.price.note}" if item.price and item.price.note else ""
        yield f"  {item.what:{width}}  {known}{note}"
    least = "at least " if found.unknown else ""
    together = f"{least}{found.hour:,.2f} an hour, {found.hour * HOURS_PER_MONTH:,.0f} a month"
    yield f"  {'together':{width}}  {together}" + (", while all slices exist" if found.comes_and_goes else "")
    if found.unknown:
        yield f"  not included, because no price is known: {', '.join(found.unknown)}"
    yield "  Disks, storage, traffic and TensorBoard come on top. Spot prices change."
