"""Memory of slices in zones, and the choice of the zone where work is expected to cost least. Pure.

Waits and lives of slices are taken to be exponential, which needs only sums. A wait that was given up, and a slice that
still lives, count with the time so far, so neither impatience nor success distorts the means. Old news fades.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import msgspec

from tpukit.core.quantities import duration

HALF_LIFE = 7 * 86_400.0
"""Seconds after which news counts half: capacity changes from week to week."""
USUAL_WAIT, USUAL_LIFE = 600.0, 6 * 3600.0
"""Seconds that are assumed of a zone until more is known. Each counts like one observation."""
OVERHEAD = 600.0
"""Seconds of each slice's life that do no new work: setup, the first step, and work since the last save."""
BETTER = 0.75
"""Part of the current zone's cost below which another zone is worth a move."""
EXPLORE_EVERY = 8
"""One request in so many may go to a zone that looks worse, to learn whether it still is."""
REFUSED_SECONDS = 600.0
"""Wait that an immediate refusal stands for."""


class Odds(msgspec.Struct, frozen=True, omit_defaults=True):
    """Sums over the requests and slices of one kind in one zone, as of `at`."""

    at: float = 0.0
    tried: float = 0.0  # requests that were served or given up
    came: float = 0.0  # of those, served
    waited: float = 0.0  # seconds of all their waits
    lost: float = 0.0  # slices that were lost
    lived: float = 0.0  # seconds of the lives of all slices

    def faded(self, now: float) -> Odds:
        """Return the sums as they count now. A clock that was set back fades nothing."""
        share = 0.5 ** (max(0.0, now - self.at) / HALF_LIFE) if self.at else 1.0
        sums = (self.tried, self.came, self.waited, self.lost, self.lived)
        return Odds(max(now, self.at), *(share * one for one in sums))

    def plus(self, other: Odds) -> Odds:
        now = max(self.at, other.at)
        one, two = self.faded(now), other.faded(now)
        fields = ("tried", "came", "waited", "lost", "lived")
        return Odds(now, *(getattr(one, name) + getattr(two, name) for name in fields))

    @property
    def wait(self) -> float:
        """Expected seconds until a slice comes."""
        return (USUAL_WAIT + self.waited) / (1.0 + self.came)

    @property
    def life(self) -> float:
        """Expected seconds until it is lost."""
        return (USUAL_LIFE + self.lived) / (1.0 + self.lost)


UNKNOWN = Odds()


def served(odds: Odds, waited: float, now: float) -> Odds:
    return odds.plus(Odds(now, tried=1.0, came=1.0, waited=max(0.0, waited)))


def given_up(odds: Odds, waited: float, now: float) -> Odds:
    """Return the odds after a request that was refused, or that waited too long."""
    return odds.plus(Odds(now, tried=1.0, waited=max(REFUSED_SECONDS, waited)))


def lost(odds: Odds, lived: float, now: float) -> Odds:
    return odds.plus(Odds(now, lost=1.0, lived=max(0.0, lived)))


@dataclass(frozen=True, slots=True)
class Offer:
    """A zone that a slice may be requested in."""

    zone: str
    usd: float | None  # an hour of the slice; None: no price is known
    odds: Odds = UNKNOWN


@dataclass(frozen=True, slots=True)
class Choice:
    zone: str
    why: str


def cost(offer: Offer, delay_usd: float) -> float:
    """Return the expected USD for an hour of new work. An hour of waiting costs `delay_usd`."""
    return _cost(offer, offer.odds.wait, offer.odds.life, delay_usd)


def choose(offers: Sequence[Offer], current: str = "") -> Choice:
    """Return the zone with the lowest expected cost, of equal ones the first.

    With `current`, stay there unless another one is clearly better. One request in EXPLORE_EVERY goes to the zone that
    was tried least, if it could be better than the best one under favourable, still plausible odds.
    """
    priced = [one.usd for one in offers if one.usd is not None]
    delay = sum(priced) / len(priced) if priced else 1.0
    offers = [one if one.usd is not None else Offer(one.zone, delay, one.odds) for one in offers]
    best = min(offers, key=lambda one: cost(one, delay))
    stays = next((one for one in offers if one.zone == current), None)
    if stays is not None and cost(best, delay) > BETTER * cost(stays, delay):
        return Choice(stays.zone, _why(stays, delay))
    tried = round(sum(one.odds.tried for one in offers))
    if stays is None and tried % EXPLORE_EVERY == EXPLORE_EVERY - 1:
        hopeful = [one for one in offers if one is not best and _hoped(one, delay) < cost(best, delay)]
        if hopeful:
            least = min(hopeful, key=lambda one: one.odds.tried)
            return Choice(least.zone, f"{_why(least, delay)}, tried to learn more")
    return Choice(best.zone, _why(best, delay))


def _hoped(offer: Offer, delay_usd: float) -> float:
    """Return the cost if the zone is as much better as its few observations allow."""
    waits, lives = 1.0 + 2.0 / math.sqrt(1.0 + offer.odds.tried), 1.0 + 2.0 / math.sqrt(1.0 + offer.odds.lost)
    return _cost(offer, offer.odds.wait / waits, offer.odds.life * lives, delay_usd)


def _cost(offer: Offer, wait: float, life: float, delay_usd: float) -> float:
    life = max(life, 2 * OVERHEAD)
    return ((offer.usd or 0.0) * life + delay_usd * wait) / (life - OVERHEAD)


def _why(offer: Offer, delay_usd: float) -> str:
    known = f"comes in {duration(offer.odds.wait)} and stays {duration(offer.odds.life)}"
    return f"{offer.zone} costs about {cost(offer, delay_usd):.2f} USD for an hour of work ({known})"


def merged(many: Sequence[Mapping[str, Odds]]) -> dict[str, Odds]:
    """Return the sums of several memories by zone."""
    total: dict[str, Odds] = {}
    for memory in many:
        for zone, odds in memory.items():
            total[zone] = total[zone].plus(odds) if zone in total else odds
    return total


def alive(odds: Odds, since: float, now: float) -> Odds:
    """Return the odds with a slice that still lives."""
    return odds.plus(Odds(max(now, odds.at), lived=max(0.0, now - since)))


def bounded(memory: Mapping[str, Odds], most: int) -> dict[str, Odds]:
    """Return the newest entries, at most `most`."""
    newest = sorted(memory.items(), key=lambda item: -item[1].at)[:most]
    return dict(newest)
