"""Hourly price of a job's slices by the catalogue, here and elsewhere."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

from tpukit import catalogue
from tpukit.catalogue import Slice, prices
from tpukit.core.errors import TpukitError
from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Job


@dataclass(frozen=True, slots=True)
class Rate:
    """USD an hour for all slices of a job; None if no price is known."""

    usd: float | None
    note: str
    zone: str = ""
    capacity: str = ""


def of_job(job: Job) -> Rate:
    """Return the rate of a job: that of its zone, or of the cheapest zone with the slice, in its region if known.

    A job on this machine costs nothing.
    """
    if job.plan.get("machine"):
        return Rate(0.0, "runs on this machine")
    try:
        spec, vms = job.plan["spec"], job.plan.get("vms") or {}
        capacity, slices = spec.get("capacity", "on-demand"), spec.get("slices", 1)
        if not isinstance(capacity, str):
            return Rate(None, "the price of a reservation is in its contract", capacity="reservation")
        machine = job.plan["slice"].get("machine_type")
        region = str(job.plan["settings"].get("region") or "")
        return _rate(str(job.plan["slice"]["name"]), machine, int(slices), capacity, region, str(vms.get("zone") or ""))
    except (TpukitError, ValueError, KeyError, TypeError, AttributeError) as error:
        return Rate(None, f"its plan cannot be read: {error}")


def of_plan(plan: Plan) -> Rate:
    """Return the rate of a job that would be sent."""
    capacity = plan.spec.capacity
    if not isinstance(capacity, str):
        return Rate(None, "the price of a reservation is in its contract", capacity="reservation")
    return _of_plan(plan, capacity)


def list_price(plan: Plan) -> float | None:
    """Return USD an hour for the slices of a plan by list prices, a reservation at the on-demand price."""
    return _of_plan(plan, plan.spec.capacity if isinstance(plan.spec.capacity, str) else "on-demand").usd


def _of_plan(plan: Plan, capacity: str) -> Rate:
    region, zone = plan.settings.region or "", plan.vms.zone if plan.vms else ""
    return _rate(plan.slice.name, plan.slice.machine_type, plan.spec.slices, capacity, region, zone)


def of_slices(slice_: Slice, count: int, capacity: str) -> Rate:
    """Return the rate of slices in the cheapest zone that has them. A negative number of slices saves that much."""
    if capacity not in prices.CAPACITIES or capacity == "reservation":
        return Rate(None, "the price of a reservation is in its contract", capacity="reservation")
    rate = _rate(slice_.name, slice_.machine_type, abs(count), capacity, "", "")
    return rate if count >= 0 or rate.usd is None else Rate(-rate.usd, rate.note, rate.zone, rate.capacity)


def elsewhere(plan: Plan) -> Mapping[tuple[str, str], float]:
    """Return USD an hour for the slices of a plan, by zone and capacity, wherever a price is known."""
    known = {}
    for zone in plan.slice.zones:
        for capacity in ("on-demand", "spot", "flex-start"):
            if price := prices.price(plan.slice, zone, capacity):
                known[zone, capacity] = price.usd * plan.spec.slices
    return known


@lru_cache(maxsize=4096)
def _rate(name: str, machine: str | None, slices: int, capacity: str, region: str, zone: str) -> Rate:
    """Return the rate from plain values.

    Reading a whole plan takes a hundred times as long, and lists have thousands of jobs.
    """
    slice_ = catalogue.find(name, machine_type=machine)
    names = [zone] if zone else _zones(slice_, region)
    priced = [(price, zone) for zone in names if (price := prices.price(slice_, zone, capacity))]
    if not priced:
        return Rate(None, f"no {capacity} price of {slice_.name} is known", capacity=capacity)
    price, zone = min(priced, key=lambda pair: pair[0].usd)
    times = f"{slices} x " if slices > 1 else ""
    note = f"{times}{slice_.name}, {capacity}, {zone}, list price of {price.as_of}"
    return Rate(price.usd * slices, note, zone, capacity)


def _zones(slice_: Slice, region: str) -> list[str]:
    """Return the zones that a job may run in, as far as its plan says."""
    known = list(slice_.zones)
    return [zone for zone in known if region and zone.rpartition("-")[0] == region] or known
