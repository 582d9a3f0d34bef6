"""`tpu team what-if`: who starts when, who is evicted and what it costs, with another queue than today's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from tpukit import places
from tpukit.cli.plan_view import set_option

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.teams.forecast.outlook import Outlook
    from tpukit.teams.forecast.what_if import Slices
    from tpukit.teams.waiting import Queues


@click.command("what-if")
@click.argument("file", required=False, type=click.Path(path_type=Path))
@set_option
@click.option(
    "--slices", "more", multiple=True, metavar="[TEAM/]TPU=N", help="N more slices, in the common queue or a team's."
)
@click.option("--quota", "quotas", multiple=True, metavar="TEAM/TPU=N", help="Quota of a team: N slices.")
@click.option("--priority", "priorities", multiple=True, metavar="JOB=PRIORITY", help="Priority of a job in the queue.")
@click.option("--without", multiple=True, metavar="JOB", help="Leave this job out, whether it waits or runs.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def command(
    file: Path | None,
    sets: tuple[str, ...],
    more: tuple[str, ...],
    quotas: tuple[str, ...],
    priorities: tuple[str, ...],
    without: tuple[str, ...],
    as_json: bool,
) -> None:
    """Predict when waiting jobs start, as things are and after a change. Nothing is changed.

    FILE is a job that would be sent. Kueue's order is simulated with the durations of earlier jobs; a range should hold
    in 80 % of cases.

    \b
    Examples:
      tpu team what-if                                 when each waiting job starts
      tpu team what-if job.yaml --set slices=4         and this one, if it were sent now
      tpu team what-if --slices v4-16:spot=1           with one more slice
      tpu team what-if --quota vision/v4-16=2 --priority pretrain=high
    """
    from tpukit.cli import context, forecast_tables, team, team_tables
    from tpukit.jobs.use_cases import submission
    from tpukit.teams import registry
    from tpukit.teams.forecast import records, what_if
    from tpukit.teams.forecast.outlook import name_of, with_plan

    slices = [what_if.parse_slices(text, "--slices") for text in more]
    moved = [what_if.parse_slices(text, "--quota") for text in quotas]
    queues, _ = registry.read_queues(team.cluster_of_kubectl())
    plan = submission.make_plan(file, sets, places.RENDERED, ()) if file else None
    now = read(queues)
    then = read(with_plan(queues, plan, now.now)) if plan else now
    picture = then.picture
    for one in slices:
        picture = what_if.with_slices(picture, one)
    for one in moved:
        picture = what_if.with_quota(picture, one)
    for text in priorities:
        picture = what_if.with_priority(picture, text)
    for text in without:
        picture = what_if.without(picture, text)
    before, after = now.predict(), then.predict(picture)
    names = sorted({*before.starts, *after.starts})
    costs = _costs(slices, plan)
    if as_json:
        rows = [
            {
                "job": name,
                "now": forecast_tables.document(before.starts.get(name)),
                "then": forecast_tables.document(after.starts.get(name)),
            }
            for name in names
        ]
        evicted = [{"job": name, "by": by} for name, by in forecast_tables.evictions(after).items()]
        team_tables.print_json({"starts": rows, "evicted": evicted, "costs": costs})
        return
    changed = bool(plan or more or quotas or priorities or without)
    found = forecast_tables.compared(before, after, names, now.now)
    if found:
        headings = ("job", "starts", "starts then")
        team_tables.print_table(headings if changed else headings[:2], found if changed else [row[:2] for row in found])
    else:
        click.echo("no jobs wait", err=True)
    if plan and name_of(plan) not in after.starts:
        click.echo(f"{name_of(plan)}: no prediction: {picture.jobs[name_of(plan)].why_not}", err=True)
    for name, by in forecast_tables.evictions(after).items():
        click.echo(f"{by} evicts {name}")
    for line in costs:
        click.echo(line)
    click.echo(records.scored(context.store()).words, err=True)


def read(queues: Queues) -> Outlook:
    """Return the outlook of these queues, with the history in the store."""
    from tpukit.cli import context
    from tpukit.goodput import budgets
    from tpukit.places.capabilities import has_queues
    from tpukit.teams.forecast.outlook import HISTORY_SECONDS, outlook

    now = context.CLOCK.now()
    recent = budgets.recent(context.store(), now - HISTORY_SECONDS)
    return outlook(queues, [job for job in recent if has_queues(job.place)], now)


def say_when(plan: Plan) -> None:
    """Print when a job would start if it were sent now."""
    from tpukit.cli import forecast_tables, team
    from tpukit.core.errors import Invalid, Problem
    from tpukit.places.capabilities import has_queues
    from tpukit.teams import registry
    from tpukit.teams.forecast.outlook import name_of, with_plan

    if not has_queues(plan.place):
        hint = "add --place gke; elsewhere a job starts as soon as it gets its slices"
        raise Invalid(Problem("--when", f"place {plan.place} has no queue", hint))
    queues, _ = registry.read_queues(team.cluster_of_kubectl())
    now = read(queues).now
    outlook = read(with_plan(queues, plan, now))
    forecast_tables.say_when(outlook, outlook.predict(), name_of(plan))


def _costs(slices: list[Slices], plan: Plan | None) -> list[str]:
    """Return what the change costs by list price."""
    from tpukit.goodput import rates

    found = []
    for one in slices:
        rate = rates.of_slices(one.kind.shape, one.count, one.kind.capacity)
        price = f"{rate.usd:,.2f} USD an hour" if rate.usd is not None else "unknown price"
        found.append(f"{one.count} × {one.kind}: {price} ({rate.note})")
    if plan:
        rate = rates.of_plan(plan)
        price = f"{rate.usd:,.2f} USD an hour" if rate.usd is not None else "unknown price"
        found.append(f"{plan.spec.name}: {price} ({rate.note})")
    return found
