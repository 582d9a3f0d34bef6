"""Budgets of teams for 30 days, and the spending of their jobs."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import msgspec

from tpukit.core.errors import NotFound
from tpukit.goodput import money, rates, sums
from tpukit.jobs.records import ACTIVE, JOBS, Job
from tpukit.kernel.store import Kind, Store, everything

WINDOW_DAYS = 30
WINDOW_SECONDS = WINDOW_DAYS * 86_400.0


class Budget(msgspec.Struct, frozen=True):
    team: str
    usd: float  # for the last 30 days
    hold: bool = False  # new jobs wait when it is spent
    created: float = 0.0


BUDGETS: Kind[Budget] = Kind("budgets", Budget, state="team", order="created")
msgspec.json.Decoder(Budget)


@dataclass(frozen=True, slots=True)
class Spending:
    budget: Budget
    usd: float

    @property
    def is_over(self) -> bool:
        return self.usd >= self.budget.usd

    @property
    def words(self) -> str:
        window = (
            f"team {self.budget.team} has spent {self.usd:,.2f} of {self.budget.usd:,.2f} USD in {WINDOW_DAYS} days"
        )
        return window + ("; its new jobs are held" if self.is_over and self.budget.hold else "")


def recent(store: Store, since: float) -> list[Job]:
    """Return the jobs that may have spent time after `since`: active ones, and those that ended later."""
    active = [entry.value for entry in everything(store, JOBS, states=ACTIVE)]
    known = {job.id for job in active}
    ended = (entry.value for entry in everything(store, JOBS))
    return active + [job for job in ended if job.id not in known and job.ended >= since]


def spending(store: Store, jobs: Iterable[Job], now: float) -> list[Spending]:
    """Return the spending of each team with a budget in the last 30 days."""
    listed = list(jobs)
    return [
        Spending(budget, _spent(listed, budget.team, now))
        for budget in (entry.value for entry in everything(store, BUDGETS))
    ]


def set_budget(store: Store, team: str, usd: float, hold: bool, now: float) -> None:
    """Set the budget of a team; 0 removes it."""
    try:
        entry = store.get(BUDGETS, team)
    except NotFound:
        if usd:
            store.create(BUDGETS, team, Budget(team, usd, hold, now))
        return
    if usd:
        store.put(BUDGETS, entry, Budget(team, usd, hold, entry.value.created))
    else:
        store.delete(BUDGETS, entry)


def _spent(jobs: Iterable[Job], team: str, now: float) -> float:
    bills = (
        money.bill(sums.of_job(job, now, now - WINDOW_SECONDS), rates.of_job(job).usd)
        for job in jobs
        if job.team == team
    )
    return sum(one.cost for one in bills)
