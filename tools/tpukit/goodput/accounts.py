"""Account of a job: its time, rate, bill and advice, as data and as sentences."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from tpukit.core.errors import TpukitError
from tpukit.goodput import intervals, money, rates, sums
from tpukit.goodput.intervals import Choice, Interval
from tpukit.goodput.money import Bill
from tpukit.goodput.rates import Rate
from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Job


@dataclass(frozen=True, slots=True)
class Account:
    job: Job
    rate: Rate
    bill: Bill


def of_job(job: Job, now: float, since: float = 0.0) -> Account:
    rate = rates.of_job(job)
    return Account(job, rate, money.bill(sums.of_job(job, now, since), rate.usd))


def together(accounts: Iterable[Account]) -> Bill:
    return money.together(one.bill for one in accounts)


def interval(bill: Bill) -> Interval | None:
    return intervals.interval(bill.goodput.measured, bill.cost if bill.usd and not bill.unpriced else None)


def choices(account: Account) -> list[Choice]:
    try:
        known = rates.elsewhere(Plan.from_json(account.job.plan))
    except TpukitError:
        return []
    return intervals.choices(account.bill.goodput, known, account.rate.zone, account.rate.capacity)


def usd(bill: Bill, rate: float | None) -> str:
    return "price unknown" if rate is None else f"{bill.cost:,.2f}"


def lines(bill: Bill, account: Account | None = None) -> list[str]:
    """Return sentences about a bill, beyond its table. `account` adds the choices of one job."""
    found = []
    if bill.usd_per_step is not None and bill.cost:
        steps = int(bill.goodput.measured.steps)
        found.append(f"a new step cost {bill.usd_per_step:.6f} USD, losses included; new steps: {steps:,}")
    if bill.unpriced:
        found.append(f"{bill.unpriced / money.HOUR_MS:,.1f} h have no known price")
    if best := interval(bill):
        gained = f", {best.usd:,.2f} USD so far" if best.usd else ""
        found.append(
            f"saving every {best.best:,.0f} s instead of {best.now:,.0f} s would save {100 * best.gain:.1f} % "
            f"± {100 * best.error:.1f} % of the running time{gained}"
        )
    for one in choices(account) if account and account.rate.usd else []:
        found.append(f"{one.capacity} in {one.zone} would have cost {one.usd:,.2f} USD, {one.note}")
    return found


def document(account: Account) -> dict[str, Any]:
    job = account.job
    head = {"id": job.id, "team": job.team, "owner": job.owner, "state": job.state, "price": account.rate.note}
    return head | {"usd_per_hour": account.rate.usd} | bill_document(account.bill, account)


def bill_document(bill: Bill, account: Account | None = None) -> dict[str, Any]:
    measured, best = bill.goodput.measured, interval(bill)
    return {
        "wall_seconds": bill.goodput.wall / 1000,
        "seconds": {cause: amount / 1000 for cause, amount in bill.goodput.spent.items()},
        "usd": {cause: round(amount, 6) for cause, amount in bill.usd.items()} or None,
        "usd_total": round(bill.cost, 6) if bill.usd else None,
        "unpriced_hours": bill.unpriced / money.HOUR_MS,
        "new_steps": int(measured.steps),
        "usd_per_new_step": bill.usd_per_step,
        "losses": int(measured.losses),
        "save_seconds": measured.save_seconds,
        "save_seconds_error": measured.save_error,
        "advice": lines(bill, account),
        "save_every_best": best.best if best else None,
    }
