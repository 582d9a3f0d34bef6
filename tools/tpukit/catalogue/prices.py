"""What slices, CPU machines, clusters and buckets cost: list prices in USD without tax, each with its date and source.

A price that no source states is None: never 0, never worked out from another region, size or kind of capacity. Prices
are regional and hold for all zones of a region; that AI zones (us-central1-ai1a) cost what their region does is
assumed, and such a price says so in its note.

On-demand prices stood still for half a year where they were compared. Spot prices moved between -37 % and +72 % in the
same time: a spot price is a sample of its date. Google announced changes of the flex-start and calendar prices for
November 2026, which are not in here. A price is no offer: ask the Cloud TPU API what a zone has.

`prices.json` is edited by hand; a row that names no region is left out of it. v2 and v3 have one price for a single
host and another for larger slices, the other generations one for all sizes.
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

__all__ = ["CAPACITIES", "HOURS_PER_MONTH", "Price", "bucket", "cluster_fee", "listed", "machine", "price"]

FILE = Path(__file__).with_name("prices.json")

# A reservation costs what its contract says, so no table knows it.
CAPACITIES: Final = ("on-demand", "spot", "flex-start", "calendar", "committed-1y", "committed-3y", "reservation")
HOURS_PER_MONTH: Final = 730  # as Google's own calculator counts: https://cloud.google.com/products/calculator
_AI_ZONE_NOTE = "that an AI zone costs what its region does is assumed"


@dataclass(frozen=True, slots=True)
class Price:
    """An amount, and how far to trust it."""

    usd: float
    per: str  # hour, GiB-month
    as_of: str  # the date of the source, or its year where no more is known
    source: str  # in words
    link: str
    note: str = ""

    def times(self, count: float) -> Price:
        return replace(self, usd=self.usd * count)


def price(slice_: Slice, zone: str, capacity: str = "on-demand") -> Price | None:
    """What the slice costs an hour in a zone; None where that is not known.

    Calendar mode is how future reservations for up to 90 days are had; committed prices are those of a contract for
    one or three years.
    """
    if capacity not in CAPACITIES:
        raise Invalid(f"there is no capacity {capacity!r}", hint=f"write one of {', '.join(CAPACITIES)}")
    row = _chip_hours().get((_billed_as(slice_), _region(zone), capacity))
    if row is None:
        return None
    amount = _price(row, "hour").times(slice_.chips)
    return replace(amount, note=_AI_ZONE_NOTE) if zones.is_ai_zone(zone) else amount


def listed(slice_: Slice, places: Iterable[str]) -> list[dict[str, Any]]:
    """Every known price of the slice in these zones, as plain data."""
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
    """What a CPU machine costs an hour on demand in a zone; None where that is not known."""
    for row in _document()["machine_hours"]:
        if (row["machine_type"], row["region"]) == (machine_type, _region(zone)):
            return _price(row, "hour")
    return None


def cluster_fee() -> Price:
    """GKE's fee for a cluster an hour, of any size. The monthly credit is for zonal and Autopilot clusters alone."""
    return _price(_document()["cluster_hour"], "hour")


def bucket(location: str) -> Price | None:
    """What a GiB of Standard storage costs a month in a region or multi-region; None where that is not known."""
    for row in _document()["bucket_gib_months"]:
        if row["location"] == location.strip().lower():
            return _price(row, "GiB-month")
    return None


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
