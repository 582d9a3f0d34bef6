"""`tpu team`: quotas of teams, and running and waiting jobs in their queues."""

from __future__ import annotations

import re
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tpukit.cli import team_forecast
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Conflict, Invalid, NotFound, Problem

if TYPE_CHECKING:
    from tpukit.cluster.bootstrap import Step
    from tpukit.cluster.programs import Command
    from tpukit.kube import Cluster
    from tpukit.teams.team import Team

_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
_project = click.option(
    "--project", help="Google Cloud project of the cluster (default: that of the settings or the account)."
)


@click.group("team", invoke_without_command=True)
@click.pass_context
def command(context: click.Context) -> None:
    """Manage teams, which share the slices of a cluster: a namespace and a queue each, with or without a quota.

    A team without a quota shares the common queue with all others like it. A team with one is always given that much:
    others may borrow what it leaves, and lose it when it is asked back. In a queue jobs go by priority, then by when
    they came; a job takes the slices of lower ones, which resume later.

    \b
    Examples:
      tpu team add vision --quota v4-16=2 --member user:ada@example.com
      tpu team add vision --borrow v4-16=1         change one thing, and leave the rest
      tpu team add vision --own-account --bind     an account that reaches its folder of the bucket alone
      tpu team add vision --quota v4-16:spot=1     where there are on-demand and spot slices
      tpu team add speech --dry-run                the documents that the cluster would get
      tpu team                                     all teams
      tpu team queue                               what runs, what waits, in which order and why
      tpu team queue vision --json
      tpu team what-if                             when each waiting job starts
      tpu team what-if --slices v4-16=1            and with one more slice
      tpu team remove vision
    """
    if context.invoked_subcommand is None:
        context.invoke(list_)


@command.command("add")
@click.argument("name")
@click.option(
    "--quota",
    multiple=True,
    metavar="TPU[:CAPACITY]=SLICES",
    help="Slices that belong to the team: v4-16=2, or v4-16:spot=2 where the cluster has several kinds; or none.",
)
@click.option(
    "--borrow",
    multiple=True,
    metavar="TPU[:CAPACITY]=SLICES",
    help="Unused slices of other teams that it may borrow; or none, or unlimited (default).",
)
@click.option(
    "--member", "members", multiple=True, metavar="WHO", help="user:EMAIL, group:EMAIL or account:NAME; or none."
)
@click.option(
    "--service-account", "email", metavar="EMAIL", help="Google account that the team's jobs act as; or none."
)
@click.option(
    "--own-account",
    is_flag=True,
    help="Create a Google account for the team, with access to its folder of the bucket only.",
)
@click.option("--bucket", metavar="gs://NAME", help="Bucket for --own-account (default: the setting artifacts).")
@click.option(
    "--bind",
    is_flag=True,
    help="Also create the account, let its jobs act as it, and grant members IAM roles, with gcloud.",
)
@click.option("--allow-root/--no-allow-root", default=None, help="Let the team's programs run as root.")
@click.option(
    "--access",
    type=click.Choice(["restricted", "tpu", "privileged"]),
    help="Rights of its pods to open chips: none; root and locked memory; or, as a last resort, all.",
)
@click.option(
    "--egress",
    multiple=True,
    metavar="RANGE",
    help="Networks that the team's pods may reach; google; or unlimited (default).",
)
@_project
@click.option("--dry-run", is_flag=True, help="Print the objects for the cluster as JSON; change nothing.")
def add(
    name: str,
    quota: tuple[str, ...],
    borrow: tuple[str, ...],
    members: tuple[str, ...],
    email: str | None,
    own_account: bool,
    bucket: str | None,
    bind: bool,
    allow_root: bool | None,
    access: str | None,
    egress: tuple[str, ...],
    project: str | None,
    dry_run: bool,
) -> None:
    """Create or change a team. Other settings stay. Safe to repeat."""
    from tpukit.cli import team_tables
    from tpukit.cluster import team_members
    from tpukit.teams import registry
    from tpukit.teams.team import request

    own = _own_account(name, bucket, project, email) if own_account else []
    if own:
        email = _email_of(name, project)
    wanted = request(
        name,
        quota=quota,
        borrow=borrow,
        members=members,
        email=email,
        allow_root=allow_root,
        egress=egress,
        access=access,
    )
    cluster, account = cluster_of_kubectl(), _account()
    change = registry.plan(cluster, wanted, account)
    identity = _identity("add", change.after, account, project)
    if bind and not identity and not team_members.people(change.after.members):
        raise Invalid(Problem("--bind", f"{name} has no Google account to act as", "add --service-account EMAIL"))
    if dry_run:
        team_tables.print_json({"apiVersion": "v1", "kind": "List", "items": list(change.documents)})
    else:
        change = registry.apply(cluster, change, account, SystemClock(), _say)
    team_tables.print_change(change, dry_run=dry_run)
    if own:
        _run_or_show_all(own, run=bind and not dry_run)
    if identity:
        _run_or_show(identity, run=bind and not dry_run, why=f"to let its jobs act as {change.after.email}, run")
    if members or bind:
        _grant_members(change.after, project, bucket, own=own_account, run=bind and not dry_run)


@command.command("list")
@_json
def list_(as_json: bool) -> None:
    """List teams with their quotas, jobs and members."""
    from tpukit.cli import team_tables
    from tpukit.teams import queue_rows, registry

    cluster = cluster_of_kubectl()
    queues, _ = registry.read_queues(cluster)
    teams = registry.read_teams(cluster, _account())
    rows = queue_rows.jobs(queues)
    if as_json:
        team_tables.print_json([team_tables.team_json(team, rows) for team in teams])
        return
    team_tables.warn(queues.cluster_queues)
    team_tables.print_teams(teams, rows)


@command.command()
@click.argument("name")
@_json
def show(name: str, as_json: bool) -> None:
    """Show a team: its quota, members, accounts and jobs."""
    from tpukit.cli import team_tables
    from tpukit.teams import queue_rows, registry

    cluster, account = cluster_of_kubectl(), _account()
    team = _find(cluster, name, account)
    queues, _ = registry.read_queues(cluster, name)
    rows = queue_rows.jobs(queues, name)
    if as_json:
        team_tables.print_json(team_tables.team_json(team, rows))
        return
    team_tables.print_team(team, account, rows)


@command.command()
@click.argument("team", required=False, default="")
@_json
def queue(team: str, as_json: bool) -> None:
    """Show running and waiting jobs of all teams or one, in their order, and why they wait."""
    from tpukit.cli import team_tables
    from tpukit.teams import queue_rows, registry

    queues, all_teams = registry.read_queues(cluster_of_kubectl(), team)
    local = [one for one in queues.local_queues if one["metadata"]["namespace"] == team]
    if team and not local:
        raise NotFound(f"there is no team {team}", hint="`tpu team` lists them")
    rows = queue_rows.jobs(queues, team)
    has = queue_rows.queues_of(queues, local[0]["spec"]["clusterQueue"] if local else "", all_teams=all_teams)
    if as_json:
        team_tables.print_json({"queues": [asdict(row) for row in has], "jobs": [asdict(row) for row in rows]})
        return
    team_tables.warn(queues.cluster_queues)
    if not all_teams:
        click.echo("jobs of other teams are counted but not listed, because you are not a member", err=True)
    team_tables.print_queues(has)
    team_tables.print_jobs(rows)
    if any(row.state == "runs" for row in rows) and all(row.eviction_usd is None for row in rows):
        click.echo(
            "what an eviction costs is not known, so Kueue evicts the newest job first: `tpu serve` writes the costs of"
            " the jobs that it drives if Kueue's feature PriorityBoost is on",
            err=True,
        )


@command.command()
@click.argument("name")
@click.option("--force", is_flag=True, help="Remove the team even if its jobs run or wait; they end.")
@click.option(
    "--unbind", is_flag=True, help="Also revoke, with gcloud, the right of its jobs to act as its Google account."
)
@_project
def remove(name: str, force: bool, unbind: bool, project: str | None) -> None:
    """Remove a team with its namespace and everything in it, and release its quota."""
    from tpukit.teams import registry

    cluster, account = cluster_of_kubectl(), _account()
    team = _find(cluster, name, account)
    if team.made_with_cluster:
        hint = "remove it with the cluster, or with `kubectl delete` of the files that created it"
        raise Conflict(f"team {name} was created with the cluster", hint=hint)
    there = registry.jobs(cluster, name)
    if there and not force:
        named = ", ".join(there[:3])
        hint = f"`tpu team queue {name}` shows them; --force stops them"
        raise Conflict(f"team {name} has {_count(len(there), 'job')} ({named}): nothing was removed", hint=hint)
    for line in registry.remove(cluster, team, account, SystemClock(), _say):
        click.echo(f"removed {line}", err=True)
    if identity := _identity("remove", team, account, project):
        why = f"to remove the binding to {team.email} at Google, run"
        _run_or_show(identity, run=unbind, why=why)
    _show_what_stays(team)


def _show_what_stays(team: Team) -> None:
    """Print how to delete a team's own account and folder. They outlive the team, as the folder has checkpoints."""
    from tpukit.cluster import team_account
    from tpukit.jobs.spec import settings

    if team.email.startswith(f"{team_account.account_of(team.name)}@"):
        left = team_account.removal(team.name, team.email, settings.load().artifacts or "gs://BUCKET")
        shown = "\n  ".join(map(str, left))
        click.echo(
            f"its account and folder stay at Google until this is run (the folder must be empty):\n  {shown}", err=True
        )


def cluster_of_kubectl() -> Cluster:
    from tpukit.kube import Cluster

    return Cluster()


def _account() -> str:
    from tpukit.jobs.spec import settings

    return settings.load().service_account


def _say(text: str) -> None:
    click.echo(text, err=True)


def _find(cluster: Cluster, name: str, account: str) -> Team:
    from tpukit.teams import registry

    found = registry.read_teams(cluster, account, name)
    if not found:
        raise NotFound(f"there is no team {name}", hint=f"`tpu team` lists them; `tpu team add {name}` creates it")
    return found[0]


def _identity(verb: str, team: Team, account: str, project: str | None) -> Command | None:
    """Return the command that binds the team's pods to its Google account: the IAM part of Workload Identity."""
    if not team.email:
        return None
    from tpukit.cluster import gcloud
    from tpukit.jobs.spec import settings
    from tpukit.teams.team import project as project_of

    pool = project or settings.load().project or project_of(team.email)
    return gcloud.command(
        *("iam", "service-accounts", f"{verb}-iam-policy-binding", team.email),
        *(f"--project={project_of(team.email)}", "--role=roles/iam.workloadIdentityUser"),
        f"--member=serviceAccount:{pool}.svc.id.goog[{team.name}/{account}]",
        *("--condition=None", "--format=none"),
    )


def _own_account(name: str, bucket: str | None, project: str | None, email: str | None) -> list[Step]:
    """Return the steps that create a team's own account and folder."""
    from tpukit.cluster import team_account
    from tpukit.jobs.spec import settings

    place = bucket or settings.load().artifacts or ""
    if email is not None:
        raise Invalid(
            Problem("--own-account", "--service-account already names an account", "leave out --service-account")
        )
    if not re.fullmatch(r"gs://[a-z0-9][-a-z0-9_.]+[a-z0-9]/?", place):
        hint = f"pass --bucket gs://NAME; or {settings.hint('artifacts')}"
        raise Invalid(Problem("--bucket", "not given, and no bucket for the team's folder is set", hint))
    return team_account.steps(name, _project_of_cluster(project), place)


def _grant_members(team: Team, project: str | None, bucket: str | None, *, own: bool, run: bool) -> None:
    """Grant members the roles that they need outside the cluster, or print the commands."""
    from tpukit.cli import context
    from tpukit.cluster import gcloud, team_members
    from tpukit.jobs.spec import settings

    where = project or settings.load().project
    has_folder = own or team.email.startswith("team-")
    folder = (bucket or settings.load().artifacts or "") if has_folder else ""
    lines = team_members.commands(team.name, team.members, where or "PROJECT", folder)
    if not lines:
        return
    if not run or not where:
        shown = "\n  ".join(map(str, lines))
        click.echo(f"to give members access to the cluster, its logs and their folder, run:\n  {shown}", err=True)
        return
    for line in lines:
        gcloud.change_policy(line, "granting members their roles", context.CLOCK)
    click.echo("roles of members: granted", err=True)


def _email_of(name: str, project: str | None) -> str:
    from tpukit.cluster import gcloud, team_account

    return gcloud.email(team_account.account_of(name), _project_of_cluster(project))


def _project_of_cluster(project: str | None) -> str:
    from tpukit.jobs.spec import settings

    found = project or settings.load().project
    if not found:
        hint = f"pass --project NAME; or {settings.hint('project')}"
        raise Invalid(Problem("--project", "not given, and no project is set", hint))
    return found


def _run_or_show_all(steps: list[Step], *, run: bool) -> None:
    from tpukit.cli import context
    from tpukit.cluster import team_account

    if run:
        team_account.run(steps, context.CLOCK, lambda text: click.echo(text, err=True))
        return
    shown = "\n  ".join(team_account.lines(steps))
    click.echo(f"to create its account and folder, run:\n  {shown}", err=True)


def _run_or_show(line: Command, *, run: bool, why: str) -> None:
    if not run:
        click.echo(f"{why}:\n  {line}", err=True)
        return
    from tpukit.cli import context
    from tpukit.cluster import gcloud

    gcloud.change_policy(line, "binding the accounts", context.CLOCK)
    click.echo("Workload Identity: done", err=True)


def _count(number: int, what: str) -> str:
    return f"{number} {what}" + ("" if number == 1 else "s")


command.add_command(team_forecast.command)
