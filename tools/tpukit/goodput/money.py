"""Spent time in money. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tpukit.goodput.causes import UNBILLED, USEFUL, Cause
from tpukit.goodput.sums import Goodput, total

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Bill:
    """Cost of the time of one job or many. `usd` has the causes of jobs with a known price."""

    goodput: Goodput
    usd: Mapping[Cause, float] = field(default_factory=dict)
    unpriced: int = 0  # milliseconds of billed time without a known price

    @property
    def cost(self) -> float:
        return sum(self.usd.values())

    @property
    def useful_share(self) -> float | None:
        """The share of billed time spent on new steps; None if none was billed."""
        billed = sum(amount for cause, amount in self.goodput.spent.items() if cause not in UNBILLED)
        useful = sum(amount for cause, amount in self.goodput.spent.items() if cause in USEFUL)
        return useful / billed if billed else None

    @property
    def usd_per_step(self) -> float | None:
        """The cost of a new step, with all losses; None if no step or no price is known."""
        steps = self.goodput.measured.steps
        return self.cost / steps if steps > 0 and self.usd and not self.unpriced else None


def bill(goodput: Goodput, usd_per_hour: float | None) -> Bill:
    billed = {cause: amount for cause, amount in goodput.spent.items() if cause not in UNBILLED}
    if usd_per_hour is None:
        return Bill(goodput, {}, sum(billed.values()))
    return Bill(goodput, {cause: amount / HOUR_MS * usd_per_hour for cause, amount in billed.items()})


def together(bills: Iterable[Bill]) -> Bill:
    every = list(bills)
    usd: dict[Cause, float] = {}
    for one in every:
        for cause, amount in one.usd.items():
            usd[cause] = usd.get(cause, 0.0) + amount
    return Bill(total(one.goodput for one in every), usd, sum(one.unpriced for one in every))
