"""Cost of an environment by hour and month, by list prices. Items without a known price are listed, but not counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from tpukit.catalogue import prices
from tpukit.catalogue.prices import HOURS_PER_MONTH, Price
from tpukit.cluster import boot_disks, checks
from tpukit.cluster.spec import ClusterSpec
from tpukit.core.quantities import counted

ENTRY_BYTES = 2048
"""Size of one line of a host in Cloud Logging: a short line of a job in a sandbox, with the labels of its pod, as JSON.

Google counts entries before indexing: https://cloud.google.com/stackdriver/pricing
"""
_SECONDS_PER_MONTH = HOURS_PER_MONTH * 3600


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
    hosts: int = 0  # whose output is stored
    data: Price | None = None  # of a GiB in the bucket for a month

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
    items.append(Item(f"{nodes} × {machine}", price and price.times(nodes)))
    for disk, count in ((boot_disks.of_cpu_nodes(spec), nodes), *boot_disks.of_hosts(spec).items()):
        price = prices.disk(disk.type, spec.zone)
        items.append(Item(f"{count} × {disk.gb} GB {disk.type}", price and price.times(count * disk.gb)))
    items.append(Item("GKE's fee", prices.cluster_fee()))
    return Estimate(
        spec.zone,
        tuple(items),
        spec.enable_tpu_autoscaling or "flex-start" in capacities.values(),
        sum(shape.hosts for shape in spec.shapes.values()) if "WORKLOADS" in spec.logging_components else 0,
        prices.bucket(spec.region),
    )


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
    yield "  Not included: traffic, TensorBoard, and by use:"
    yield f"    data in the bucket: {_data(found.data)}"
    if found.hosts:
        yield f"    logs: {_logs(found.hosts)}"
    yield "  Spot prices change."


def _data(price: Price | None) -> str:
    if price is None:
        return "price unknown"
    return f"{price.times(1024).usd:,.2f} a month for each TiB (as of {price.as_of})"


def _logs(hosts: int) -> str:
    month = hosts * _SECONDS_PER_MONTH * ENTRY_BYTES / 2**30
    volume = f"one line a second from each of {counted(hosts, 'host')} is {month:,.0f} GiB a month"
    beyond, price = month - prices.FREE_LOG_GIB, prices.logs()
    if beyond <= 0:
        return f"{volume}, which is free"
    cost = f"{price.times(beyond).usd:,.0f} a month (as of {price.as_of})"
    return f"{volume}: {cost}, the first {prices.FREE_LOG_GIB} GiB are free; see logging_components"
