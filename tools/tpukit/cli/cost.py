"""`tpu cost`: what jobs cost, and what their time went to."""

from __future__ import annotations

import csv
import io
from typing import TYPE_CHECKING

import click

from tpukit.cli.completion import job_ids

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tpukit.goodput.accounts import Account
    from tpukit.goodput.causes import Cause
    from tpukit.goodput.groups import Group
    from tpukit.goodput.money import Bill
    from tpukit.jobs.records import Job
    from tpukit.jobs.report.layout import TableField


@click.command("cost")
@click.argument("job", required=False, shell_complete=job_ids)
@click.option("--team", default="", help="Only jobs of this team.")
@click.option("--since", default="", metavar="TIME", help="Only time since then, such as 7d, 12h or 2026-11-01.")
@click.option("--by", type=click.Choice(["job", "team", "owner", "week"]), default="job", help="Sum the jobs by this.")
@click.option("--budget", type=click.FloatRange(min=0), metavar="USD", help="Set what --team may spend in 30 days.")
@click.option("--hold", is_flag=True, help="With --budget: hold new jobs of the team while its budget is spent.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--csv", "as_csv", is_flag=True, help="Print CSV: a row for each job, or for each sum of --by.")
def command(
    job: str | None, team: str, since: str, by: str, budget: float | None, hold: bool, as_json: bool, as_csv: bool
) -> None:
    """Show what jobs cost by list price, and the causes of their time.

    Each second of a job has one cause: waiting, making slices, starting, compiling, new steps, repeated steps, saving,
    hung, or stopped. Waiting and making slices are not billed. A budget of 0 removes it.

    \b
    Examples:
      tpu cost                       all jobs
      tpu cost pretrain              one job, with advice
      tpu cost --by week --team research
      tpu cost --team research --since 30d --csv
      tpu cost --team research --budget 5000 --hold
    """
    from tpukit.cli import context
    from tpukit.core.errors import Invalid, Problem
    from tpukit.goodput import accounts, budgets
    from tpukit.goodput.causes import Cause

    now = context.CLOCK.now()
    if budget is not None:
        if not team:
            raise Invalid(Problem("--budget", "--budget needs a team", "write --team TEAM --budget USD"))
        budgets.set_budget(context.store(), team, budget, hold, now)
        said = f"{budget:,.2f} USD in {budgets.WINDOW_DAYS} days" if budget else "removed"
        click.echo(f"budget of team {team}: {said}", err=True)
        return
    start = _since(since, now)
    jobs = _jobs(job, team, start)
    listed = [accounts.of_job(one, now, start) for one in jobs]
    whole = accounts.together(listed)
    summed = _summed(listed, by, now, start) if by != "job" else None
    warnings = [one.words for one in budgets.spending(context.store(), jobs, now) if one.is_over] if not job else []
    if as_json:
        document = {"jobs": [accounts.document(one) for one in listed], "total": accounts.bill_document(whole)}
        if summed is not None:
            rows = [{by: one.name, "jobs": one.jobs} | accounts.bill_document(one.bill) for one in summed]
            document = {"groups": rows, "total": document["total"]}
        context.print_json(document | {"budgets_spent": warnings})
    elif as_csv:
        click.echo(_csv(listed) if summed is None else _csv_of(summed, by), nl=False)
    elif not listed:
        click.echo("no such jobs; `tpu job list` shows all", err=True)
    else:
        if job:
            click.echo(f"{listed[0].job.id}  {accounts.usd(whole, listed[0].rate.usd)}  ({listed[0].rate.note})")
        elif summed is not None:
            _print_groups(summed, by)
        else:
            _print_jobs(listed)
        _print_causes(whole, [cause for cause in Cause if cause in whole.goodput.spent], listed[0] if job else None)
    for text in warnings:
        click.echo(text, err=True)


def _jobs(name: str | None, team: str, start: float) -> list[Job]:
    from tpukit.cli import context
    from tpukit.goodput import budgets

    if name:
        return [context.find(name)]
    found = [job for job in budgets.recent(context.store(), start) if team in ("", job.team)]
    return sorted(found, key=lambda job: job.created, reverse=True)


def _summed(listed: Sequence[Account], by: str, now: float, since: float) -> list[Group]:
    """Return the sums, with weeks named by the date of their Monday in UTC."""
    from dataclasses import replace
    from datetime import UTC, datetime

    from tpukit.goodput import groups
    from tpukit.goodput.causes import week_start

    found = groups.grouped(listed, by, now, since)
    if by != "week":
        return found
    mondays = [datetime.fromtimestamp(week_start(int(one.name)) / 1000, UTC).date() for one in found]
    return [replace(one, name=monday.isoformat()) for one, monday in zip(found, mondays, strict=True)]


def _since(text: str, now: float) -> float:
    from datetime import UTC, datetime

    from tpukit.core.errors import Invalid, Problem
    from tpukit.jobs.spec import durations

    if not text:
        return 0.0
    try:
        return now - durations.parse(text)
    except ValueError:
        pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        problem = Problem("--since", f"{text!r} is neither a duration nor a date", "write 7d, 12h or 2026-11-01")
        raise Invalid(problem) from error
    return (moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp()


def _csv(listed: Sequence[Account]) -> str:
    heads = ["job", "team", "state"]
    return _table([[one.job.id, one.job.team, one.job.state] for one in listed], heads, [one.bill for one in listed])


def _csv_of(summed: Sequence[Group], by: str) -> str:
    return _table([[one.name, one.jobs] for one in summed], [by, "jobs"], [one.bill for one in summed])


def _table(firsts: Sequence[Sequence[object]], heads: Sequence[str], bills: Sequence[Bill]) -> str:
    """Return CSV: the first columns, then those of the bills. The cost is empty if some of it has no known price."""
    from tpukit.goodput.causes import Cause

    text = io.StringIO()
    rows = csv.writer(text, lineterminator="\n")
    rows.writerow([*heads, "usd", "new_steps", *(f"{cause} s" for cause in Cause)])
    for first, bill in zip(firsts, bills, strict=True):
        usd = "" if bill.unpriced else f"{bill.cost:.6f}"
        seconds = (bill.goodput.spent.get(cause, 0) / 1000 for cause in Cause)
        rows.writerow([*first, usd, int(bill.goodput.measured.steps), *seconds])
    return text.getvalue()


def _print_jobs(listed: Sequence[Account]) -> None:
    from tpukit.goodput.accounts import usd
    from tpukit.jobs.report import tables
    from tpukit.jobs.report.layout import FittedTable, TableField, plain

    fields = [
        TableField("job", [plain(one.job.id) for one in listed]),
        TableField("team", [plain(one.job.team) for one in listed], drop=2),
        TableField("state", [one.job.state for one in listed], drop=3),
        *_bill_fields([one.bill for one in listed]),
        TableField("USD", [usd(one.bill, one.rate.usd) for one in listed]),
    ]
    tables.console().print(FittedTable(fields))
    click.echo()


def _print_groups(summed: Sequence[Group], by: str) -> None:
    from tpukit.jobs.report import tables
    from tpukit.jobs.report.layout import FittedTable, TableField, plain

    fields = [
        TableField(by, [plain(one.name) for one in summed]),
        TableField("jobs", [str(one.jobs) for one in summed]),
        *_bill_fields([one.bill for one in summed]),
        TableField("USD", [f"{one.bill.cost:,.2f}" for one in summed]),
    ]
    tables.console().print(FittedTable(fields))
    click.echo()


def _bill_fields(bills: Sequence[Bill]) -> list[TableField]:
    from tpukit.jobs import report
    from tpukit.jobs.report.layout import TableField

    return [
        TableField("wall", [report.duration(bill.goodput.wall / 1000) for bill in bills]),
        TableField("useful", [_share(bill.useful_share) for bill in bills]),
    ]


def _print_causes(whole: Bill, causes: Sequence[Cause], account: Account | None) -> None:
    from tpukit.goodput.accounts import lines
    from tpukit.jobs import report
    from tpukit.jobs.report import tables
    from tpukit.jobs.report.layout import FittedTable, TableField

    spent = [whole.goodput.spent[cause] for cause in causes]
    fields = [
        TableField("cause", [*causes, "total"]),
        TableField("time", [report.duration(amount / 1000) for amount in (*spent, whole.goodput.wall)]),
        TableField("share", [_share(amount / (whole.goodput.wall or 1)) for amount in (*spent, whole.goodput.wall)]),
        TableField("USD", [f"{whole.usd.get(cause, 0):,.2f}" for cause in causes] + [f"{whole.cost:,.2f}"]),
    ]
    tables.console().print(FittedTable(fields))
    for line in lines(whole, account):
        click.echo(line)


def _share(share: float | None) -> str:
    return "-" if share is None else f"{100 * share:.1f} %"
