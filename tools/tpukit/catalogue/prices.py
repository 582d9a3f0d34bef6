"""List prices of slices, CPU machines, disks, clusters, buckets and logs: USD without tax, dated and with a source.

A price that no source states is None: never 0, never derived from another region, size or capacity. Prices are regional
and hold for all zones of a region. AI zones (us-central1-ai1a) are assumed to cost what their region does, and such a
price has a note that says so.

On-demand prices did not change over the half year in which they were compared. Spot prices changed by -37 % to +72 % in
the same time: a spot price is a sample of its date. Google announced changes of the flex-start and calendar prices for
November 2026, which are not included here. A price does not mean capacity: ask the Cloud TPU API what a zone has.

`prices.json` is edited by hand. Rows of the source that name no region are left out. v2 and v3 have one price for a
single host and another for larger slices; the other generations have one price for all sizes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from tpukit.catalogue import Slice, zones
from tpukit.core.errors import Invalid

__all__ = [
    "CAPACITIES",
    "FREE_LOG_GIB",
    "HOURS_PER_MONTH",
    "Price",
    "bucket",
    "cluster_fee",
    "disk",
    "listed",
    "logs",
    "machine",
    "price",
]

FILE = Path(__file__).with_name("prices.json")

# A reservation costs what its contract says, so no table has its price.
CAPACITIES: Final = ("on-demand", "spot", "flex-start", "calendar", "committed-1y", "committed-3y", "reservation")
HOURS_PER_MONTH: Final = 730  # as Google's own calculator counts: https://cloud.google.com/products/calculator
FREE_LOG_GIB: Final = 50  # of a project each month: https://cloud.google.com/stackdriver/pricing
_AI_ZONE_NOTE = "that an AI zone costs what its region does is assumed"


@dataclass(frozen=True, slots=True)
class Price:
    """An amount with its date and source."""

    usd: float
    per: str  # hour, GiB-month
    as_of: str  # date of the source, or its year if nothing more is known
    source: str  # in words
    link: str
    note: str = ""

    def times(self, count: float) -> Price:
        return replace(self, usd=self.usd * count)


def price(slice_: Slice, zone: str, capacity: str = "on-demand") -> Price | None:
    """Return the price of a slice per hour in a zone, or None if unknown.

    Calendar mode is for future reservations of up to 90 days. Committed prices are those of a contract for one or three
    years.
    """
    if capacity not in CAPACITIES:
        raise Invalid(f"there is no capacity {capacity!r}", hint=f"write one of {', '.join(CAPACITIES)}")
    row = _chip_hours().get((_billed_as(slice_), _region(zone), capacity))
    if row is None:
        return None
    amount = _price(row, "hour").times(slice_.chips)
    return replace(amount, note=_AI_ZONE_NOTE) if zones.is_ai_zone(zone) else amount


def listed(slice_: Slice, places: Iterable[str]) -> list[dict[str, Any]]:
    """Return every known price of the slice in these zones, as plain data."""
    rows = []
    for zone in places:
        for capacity in CAPACITIES:
            if amount := price(slice_, zone, capacity):
                rows.append(
                    {
                        "zone": zone,
                        "capacity": capacity,
                        "usd_per_hour": round(amount.usd, 5),
                        "as_of": amount.as_of,
                        "source": amount.link,
                        "note": amount.note,
                    }
                )
    return rows


def machine(machine_type: str, zone: str) -> Price | None:
    """Return the on-demand price of a CPU machine per hour in a zone, or None if unknown."""
    for row in _document()["machine_hours"]:
        if (row["machine_type"], row["region"]) == (machine_type, _region(zone)):
            return _price(row, "hour")
    return None


def disk(disk_type: str, zone: str) -> Price | None:
    """Return the price of a GiB of a boot disk per hour in a zone, or None if unknown.

    Prices are listed by month, and disks are billed by the second.
    """
    for row in _document()["disk_gib_months"]:
        if (row["disk_type"], row["region"]) == (disk_type, _region(zone)):
            return _price(row, "hour").times(1 / HOURS_PER_MONTH)
    return None


def cluster_fee() -> Price:
    """Return GKE's fee for a cluster of any size per hour.

    The monthly credit covers zonal and Autopilot clusters only.
    """
    return _price(_document()["cluster_hour"], "hour")


def bucket(location: str) -> Price | None:
    """Return the price of a GiB of Standard storage per month in a region or multi-region, or None if unknown."""
    for row in _document()["bucket_gib_months"]:
        if row["location"] == location.strip().lower():
            return _price(row, "GiB-month")
    return None


def logs() -> Price:
    """Return the price of a GiB of logs that Cloud Logging stores, beyond `FREE_LOG_GIB` a month."""
    return _price(_document()["log_gib"], "GiB")


@cache
def _document() -> Mapping[str, Any]:
    document: Mapping[str, Any] = json.loads(FILE.read_bytes())
    return document


@cache
def _chip_hours() -> Mapping[tuple[str, str, str], Mapping[str, Any]]:
    return {(row["generation"], row["region"], row["capacity"]): row for row in _document()["chip_hours"]}


def _price(row: Mapping[str, Any], per: str) -> Price:
    source = _document()["sources"][row["source"]]
    return Price(row["usd"], per, row["as_of"], source["what"], source["link"])


def _billed_as(slice_: Slice) -> str:
    larger = slice_.hosts > 1 and slice_.generation in ("v2", "v3")
    return f"{slice_.generation}-pod" if larger else slice_.generation


def _region(zone: str) -> str:
    return zone.rpartition("-")[0]
