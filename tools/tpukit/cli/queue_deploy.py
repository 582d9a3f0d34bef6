"""`tpu queue deploy`: the queue in a cluster."""

from __future__ import annotations

from pathlib import Path

import click

from tpukit.errors import Invalid, Problem


@click.command("deploy")
@click.argument("checkout", type=click.Path(path_type=Path, exists=True, file_okay=False), default=".")
@click.option("--team", help="Whose quota queued jobs use; that of the settings unless told.")
@click.option("--tpu", default="v5e-4:spot", show_default=True, help="Slice of jobs that name none in metadata.tpu.")
@click.option("--store", help="firestore://PROJECT[/DATABASE] that applications write to; that of the settings.")
@click.option("--results", help="gs://BUCKET/PREFIX for large results; below artifacts of the settings unless told.")
@click.option("--repository", help="REGION-docker.pkg.dev/PROJECT/NAME; that of the settings if left out.")
@click.option("--project", help="Of the cluster and its accounts; that of the settings, or of the repository.")
@click.option("--context", help="Of the kubeconfig; that of the settings, or the current one.")
@click.option("--dry-run", is_flag=True, help="Print the command lines, and run nothing.")
def deploy(
    checkout: Path,
    team: str | None,
    tpu: str,
    store: str | None,
    results: str | None,
    repository: str | None,
    project: str | None,
    context: str | None,
    dry_run: bool,
) -> None:
    """Put the queue into a cluster: accounts, images (Cloud Build), the creator and the REST front end.

    CHECKOUT is tpukit's, which the images are built of. Broken off, the same command goes on where it was.
    """
    from tpukit import catalogue
    from tpukit.clock import SystemClock
    from tpukit.infra import queue_deployment
    from tpukit.infra.images import Repository
    from tpukit.infra.queue_deployment import Deployment
    from tpukit.spec import settings

    set_once = settings.load()
    known = repository or set_once.repository
    results = results or (f"{set_once.artifacts.rstrip('/')}/queue" if set_once.artifacts else None)
    missing = [
        Problem(option, "the settings name none", hint)
        for option, value, hint in (
            ("--repository", known, "`tpu cluster up` makes one and notes it there"),
            ("--results", results, "write gs://BUCKET/PREFIX"),
        )
        if not value
    ]
    if missing:
        raise Invalid(missing)
    catalogue.find(tpu.partition(":")[0])
    target = Repository(str(settings.Settings.from_json({"repository": known}).repository))
    asked = Deployment(
        checkout=checkout.resolve(),
        project=project or set_once.project or target.project,
        context=context or set_once.context or "",
        repository=target,
        team=team or set_once.team,
        store=store or settings.store(),
        results=str(results),
        tpu=tpu,
    )
    queue_deployment.check(asked)
    if dry_run:
        for line in queue_deployment.lines(asked):
            click.echo(line)
        return
    queue_deployment.run(asked, SystemClock(), lambda text: click.echo(text, err=True))
    click.echo("the queue is served; two jobs that show it:", err=True)
    click.echo(f"TPUKIT_STORE={asked.store} tpu queue test --timeout 300")
