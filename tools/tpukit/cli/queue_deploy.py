"""`tpu queue deploy` and `tpu queue uninstall`: the queue in a cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli import questions
from tpukit.core.errors import Conflict, Invalid, Problem

if TYPE_CHECKING:
    from tpukit.cluster.queue_deployment import Deployment

_NO_SLICE = "v5e-4:spot"


def _target_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that select the deployment."""
    for option in reversed(
        (
            click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False), default="."),
            click.option("--team", help="Team whose quota queued jobs use (default: the setting team)."),
            click.option(
                "--store",
                help="firestore://PROJECT[/DATABASE] that applications write to (default: the setting store).",
            ),
            click.option(
                "--results", help="gs://BUCKET/PREFIX for large results (default: below the setting artifacts)."
            ),
            click.option(
                "--repository",
                help="REGION-docker.pkg.dev/PROJECT/NAME of the images (default: the setting repository).",
            ),
            click.option(
                "--project", help="Project of the cluster and its accounts (default: the setting, or the repository's)."
            ),
            click.option("--context", help="Context of the kubeconfig (default: the setting, or the current one)."),
            click.option("--dry-run", is_flag=True, help="Print the command lines without running them."),
        )
    ):
        command = option(command)
    return command


@click.command("deploy")
@_target_options
@click.option("--tpu", default=_NO_SLICE, show_default=True, help="Slice of jobs that name none in metadata.tpu.")
def deploy(tpu: str, dry_run: bool, **target: Any) -> None:
    """Install the queue in a cluster: accounts, images (Cloud Build), the creator and the REST front end.

    CHECKOUT is the tpukit checkout that the images are built from. If the command is interrupted, run it again: it
    continues where it stopped.
    """
    from tpukit import catalogue
    from tpukit.cluster import queue_deployment
    from tpukit.core.clock import SystemClock

    catalogue.find(tpu.partition(":")[0])
    asked = _deployment(tpu=tpu, **target)
    queue_deployment.check(asked)
    if dry_run:
        for line in queue_deployment.lines(asked):
            click.echo(line)
        return
    queue_deployment.run(asked, SystemClock(), lambda text: click.echo(text, err=True))
    click.echo("the queue is served; to run two test jobs:", err=True)
    click.echo(f"TPUKIT_STORE={asked.store} tpu queue test --timeout 300")


@click.command("uninstall")
@_target_options
@click.option("--evict", is_flag=True, help="Uninstall although queued jobs run; their pods lose the right to write.")
@click.option("--yes", is_flag=True, help="Do not ask.")
def uninstall(dry_run: bool, evict: bool, yes: bool, **target: Any) -> None:
    """Remove the queue from a cluster, with its Google accounts. Jobs in the store, results and images stay."""
    from tpukit.cluster import queue_deployment, queue_removal
    from tpukit.core.clock import SystemClock

    asked = _deployment(tpu=_NO_SLICE, **target)
    queue_deployment.check(asked)
    if dry_run:
        for line in queue_removal.lines(asked):
            click.echo(line)
        return
    if (running := queue_removal.active(asked)) and not evict:
        pods = "1 pod runs" if len(running) == 1 else f"{len(running)} pods run"
        raise Conflict(
            f"{pods} queued jobs of team {asked.team}: {', '.join(running[:5])}",
            hint="wait for them, cancel them with `tpu queue cancel JOB_ID`, or pass --evict",
        )
    if not yes:
        questions.require(f"Remove the queue of team {asked.team} from {asked.project}?")
    queue_removal.run(asked, SystemClock(), lambda text: click.echo(text, err=True))
    click.echo("the queue is removed; its jobs, results and images stay", err=True)


def _deployment(
    *,
    checkout: Path,
    team: str | None,
    store: str | None,
    results: str | None,
    repository: str | None,
    project: str | None,
    context: str | None,
    tpu: str,
) -> Deployment:
    from tpukit.cluster.images import Repository
    from tpukit.cluster.queue_deployment import Deployment
    from tpukit.jobs.spec import settings

    own = settings.load()
    known = repository or own.repository
    results = results or (f"{own.artifacts.rstrip('/')}/queue" if own.artifacts else None)
    missing = [
        Problem(option, "not given as an option, and not in the settings", hint)
        for option, value, hint in (
            ("--repository", known, f"`tpu cluster up` creates one; or {settings.hint('repository')}"),
            ("--results", results, f"write gs://BUCKET/PREFIX; or {settings.hint('artifacts')}"),
        )
        if not value
    ]
    if missing:
        raise Invalid(missing)
    target = Repository(str(settings.Settings.from_json({"repository": known}).repository))
    return Deployment(
        checkout=checkout.resolve(),
        project=project or own.project or target.project,
        context=context or own.context or "",
        repository=target,
        team=team or own.team,
        store=store or settings.store(),
        results=str(results),
        tpu=tpu,
    )
