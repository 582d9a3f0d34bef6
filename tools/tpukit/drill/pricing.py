"""Price of a job's slices per hour, where it is known."""

from __future__ import annotations

from tpukit.catalogue import Slice, prices


def per_hour(slice_: Slice, slices: int, capacity: object, zone: str = "") -> tuple[float | None, str]:
    """Return USD and a description of the price. Without a zone, use the cheapest one that has the slice."""
    if not isinstance(capacity, str):
        return None, "a reservation costs what its contract says"
    names = [zone] if zone else list(slice_.zones)
    known = [(price, name) for name in names if (price := prices.price(slice_, name, capacity))]
    if not known:
        return None, f"no {capacity} price of {slice_.name} is known" + (f" in {zone}" if zone else "")
    price, name = min(known, key=lambda pair: pair[0].usd)
    times = f"{slices} x " if slices > 1 else ""
    return price.usd * slices, f"{times}{slice_.name}, {capacity}, {name}, list price of {price.as_of}"
