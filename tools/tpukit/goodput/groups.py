"""Bills of jobs summed by team, owner or week. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from tpukit.goodput import money, sums
from tpukit.goodput.accounts import Account
from tpukit.goodput.money import Bill

BY = ("team", "owner", "week")


@dataclass(frozen=True, slots=True)
class Group:
    name: str  # of a week: its number
    jobs: int
    bill: Bill


def grouped(accounts: Iterable[Account], by: str, now: float, since: float = 0.0) -> list[Group]:
    """Return the sums by team or owner, in the order of their names, or by week, the newest first."""
    bills: dict[str, list[Bill]] = {}
    for one in accounts:
        for name, bill in _parts(one, by, now, since):
            bills.setdefault(name, []).append(bill)
    names = sorted(bills, key=int, reverse=True) if by == "week" else sorted(bills)
    return [Group(name, len(bills[name]), money.together(bills[name])) for name in names]


def _parts(account: Account, by: str, now: float, since: float) -> list[tuple[str, Bill]]:
    job = account.job
    if by != "week":
        return [(job.team if by == "team" else job.owner, account.bill)]
    weeks = sums.by_week(job, now, since)
    return [(str(week), money.bill(goodput, account.rate.usd)) for week, goodput in weeks.items()]
