"""Memory of a worker: how long TPU VMs of its kind take to come in each zone, and how long they stay. Pure.

Each worker keeps its own part in its record, written with the decision that it belongs to, so nothing counts twice. A
choice uses the parts of all workers with TPU VMs of the same kind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable
from functools import lru_cache

from msgspec.structs import replace

from tpukit import catalogue
from tpukit.catalogue import prices
from tpukit.core.errors import TpukitError
from tpukit.fleet.records import ACTIVE, Worker
from tpukit.fleet.seen import Seen
from tpukit.goodput import zone_odds
from tpukit.goodput.zone_odds import Odds, Offer

MOST_ZONES = 64
"""Number of zones that one record remembers."""


def came(worker: Worker, now: float) -> Worker:
    """Return the worker with its TPU VM READY. Its wait counts if it was requested by this record."""
    if worker.held and not worker.since:
        return worker
    learnt = worker
    if worker.since and not worker.held:
        learnt = _learnt(worker, lambda odds: zone_odds.served(odds, now - worker.since, now))
    return replace(learnt, since=0.0, held=worker.held or now)


def lost(worker: Worker, now: float) -> Worker:
    """Return the worker after Google took its TPU VM."""
    if not worker.held:
        return worker
    return replace(_learnt(worker, lambda odds: zone_odds.lost(odds, now - worker.held, now)), held=0.0)


def released(worker: Worker, now: float) -> Worker:
    """Return the worker after we deleted its TPU VM, which says only that it lived so long."""
    if not worker.held:
        return worker
    return replace(_learnt(worker, lambda odds: zone_odds.alive(odds, worker.held, now)), held=0.0)


def gave_up(worker: Worker, now: float) -> Worker:
    """Return the worker after its request was refused or waited too long."""
    waited = now - worker.since if worker.since else 0.0
    return _learnt(worker, lambda odds: zone_odds.given_up(odds, waited, now))


def offers(worker: Worker, everyone: Iterable[Worker], now: float) -> tuple[Offer, ...]:
    """Return the zones of a worker, from its current one on, with prices and what other workers learnt of them."""
    kind = worker.tpu_type, worker.spot
    others = [one for one in everyone if (one.tpu_type, one.spot) == kind and one.key != worker.key]
    known = zone_odds.merged([_with_life(one, now) for one in others])
    at = worker.zones.index(worker.zone) if worker.zone in worker.zones else 0
    return tuple(
        Offer(zone, _price(worker.tpu_type, zone, worker.spot), known.get(zone, Odds()).faded(now))
        for zone in (*worker.zones[at:], *worker.zones[:at])
    )


def following(worker: Worker, seen: Seen) -> tuple[str, str]:
    """Return the zone to request next, and why it."""
    elsewhere = [one for one in _informed(worker, seen) if one.zone != worker.zone]
    if not elsewhere:
        return worker.zones[(worker.zones.index(worker.zone) + 1) % len(worker.zones)], ""
    choice = zone_odds.choose(elsewhere)
    return choice.zone, choice.why


def better(worker: Worker, seen: Seen) -> str:
    """Return why a lost TPU VM is not recreated in its zone; empty if it is."""
    if len(seen.offers) < 2:
        return ""
    choice = zone_odds.choose(_informed(worker, seen), worker.zone)
    return choice.why if choice.zone != worker.zone else ""


def _informed(worker: Worker, seen: Seen) -> list[Offer]:
    """Return the offers with what this worker itself learnt, up to this very decision."""
    own = worker.odds
    return [
        dataclasses.replace(one, odds=own[one.zone].plus(one.odds)) if one.zone in own else one for one in seen.offers
    ]


def _learnt(worker: Worker, how: Callable[[Odds], Odds]) -> Worker:
    odds = {**worker.odds, worker.zone: how(worker.odds.get(worker.zone, Odds()))}
    return replace(worker, odds=zone_odds.bounded(odds, MOST_ZONES))


def _with_life(worker: Worker, now: float) -> dict[str, Odds]:
    if not worker.held or worker.state not in ACTIVE:
        return worker.odds
    return {**worker.odds, worker.zone: zone_odds.alive(worker.odds.get(worker.zone, Odds()), worker.held, now)}


@lru_cache(maxsize=1024)
def _price(tpu_type: str, zone: str, spot: bool) -> float | None:
    try:
        found = prices.price(catalogue.find(tpu_type), zone, "spot" if spot else "on-demand")
    except TpukitError:
        return None
    return found.usd if found else None
