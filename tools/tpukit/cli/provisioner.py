"""`tpu provisioner`: node pools for waiting JobSets."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli.leaving import Leaving

if TYPE_CHECKING:
    from tpukit.kube import Cluster
    from tpukit.provisioner.driven_cluster import Identity

BUSY_TICK, IDLE_TICK = 1.0, 10.0
WORKERS = 8
PORT = 9465
LEAVE_SECONDS = 2.0
_SYSTEM, _NAME = "tpu-provisioner-system", "tpu-provisioner"


def _cluster_options(function: Any) -> Any:
    for option in (
        click.option("--project", envvar="TPUKIT_PROJECT", help="Project of the cluster (default: the ConfigMap's)."),
        click.option("--location", envvar="TPUKIT_LOCATION", help="Region or zone of the cluster."),
        click.option("--cluster", envvar="TPUKIT_CLUSTER", help="Name of the cluster in GKE."),
        click.option(
            "--zones",
            default="",
            envvar="TPUKIT_ZONES",
            help="Zones of pools, in order, where neither the JobSet nor the ConfigMap names any; a regional cluster "
            "needs one of the three.",
        ),
        click.option("--context", help="Context of the kubeconfig (default: the current one)."),
        click.option("--system", default=_SYSTEM, show_default=True, help="Namespace of its ConfigMap and Lease."),
    ):
        function = option(function)
    return function


@click.group("provisioner")
def command() -> None:
    """Create a TPU node pool for each slice that a JobSet waits for, and delete it after the JobSet ends.

    \b
    Examples:
      tpu provisioner init my-project my-cluster --location us-central2 --zones us-central2-b
      kubectl apply --server-side -k deploy/my-project/my-cluster
      tpu provisioner explain train -n research      what it did, what it waits for and what is next
      tpu provisioner run --project my-project --location us-central2 --cluster my-cluster --zones us-central2-b
    """


@command.command("run")
@_cluster_options
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port of health and metrics."
)
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address of health and metrics.")
@click.option("--no-http", is_flag=True, help="Serve neither health nor metrics.")
@click.option("--log", "log_format", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option(
    "--workers", type=click.IntRange(min=1), default=WORKERS, show_default=True, help="Concurrent calls to GKE."
)
def run(
    project: str | None,
    location: str | None,
    cluster: str | None,
    zones: str,
    context: str | None,
    system: str,
    port: int,
    bind: str,
    no_http: bool,
    log_format: str,
    workers: int,
) -> None:
    """Drive node pools, in this terminal or in a pod. Of several instances, one acts and the others wait.

    It can be killed at any moment: its state is in the cluster, and the next instance continues.
    """
    from tpukit.core.clock import SystemClock
    from tpukit.google.gke import Client
    from tpukit.kernel.loop import Loop
    from tpukit.kernel.store.process import this_process
    from tpukit.provisioner import logs
    from tpukit.provisioner.driver import Driver
    from tpukit.provisioner.leader import Leadership
    from tpukit.provisioner.metrics import Metrics
    from tpukit.provisioner.view import MirrorView

    logs.to_stderr(json_lines=log_format == "json")
    log = logging.getLogger("tpukit.provisioner")
    leaving = Leaving()
    clock, kube = SystemClock(), _kube(context)
    who = _identity(kube, system, zones, project=project, location=location, cluster=cluster)
    gke = Client(who.project, who.location, who.cluster)
    wake = threading.Event()
    view = MirrorView(kube, system, _NAME, wake.set)

    def changed(leading: bool) -> None:
        log.info("this replica leads" if leading else "this replica waits")
        wake.set()

    leader = Leadership(kube, system, _NAME, this_process(), clock, changed=changed)
    metrics = Metrics(leader.leading, clock.now)
    driver = Driver(
        kube,
        gke,
        view,
        leader,
        clock,
        zones=who.zones,
        workers=workers,
        report=lambda pool, text: log.info(text, extra={"pool": pool}),
        complain=lambda pool, text: log.warning(text, extra={"pool": pool}),
        counting=metrics.counting(),
        hooks=metrics.hooks(),
    )
    loop = Loop(
        driver.round,
        clock,
        lambda: BUSY_TICK if driver.busy() else IDLE_TICK,
        log.warning,
        store="the cluster",
        passed=metrics.round,
        failed=metrics.failed_round,
        kernel=driver.kernel,
    )
    if not no_http:
        from tpukit.kernel import http

        server = http.start(loop, metrics, port, bind)
        log.info(f"health and metrics on http://{bind}:{server.server_address[1]}")
    log.info("drives node pools", extra={"project": who.project, "location": who.location, "cluster": who.cluster})
    leader.renew()
    leader.keep()
    threading.Thread(target=_pass_on, args=(wake, loop.wake), name="wake", daemon=True).start()
    rounds = threading.Thread(target=loop.run, name="rounds", daemon=True)
    rounds.start()
    leaving.wait()
    loop.stop()
    rounds.join(LEAVE_SECONDS)
    driver.kernel.settle(LEAVE_SECONDS)
    closing = threading.Thread(target=driver.close, daemon=True)
    closing.start()
    closing.join(LEAVE_SECONDS)
    log.info("stopped; operations under way continue, and the next instance finds them")
    os._exit(0)  # do not wait for threads that hang in an unreachable cluster


@command.command("explain")
@click.argument("jobset")
@click.option("-n", "--namespace", default="default", show_default=True, help="Namespace of the JobSet.")
@_cluster_options
@click.option("--json", "as_json", is_flag=True, help="Print an object.")
def explain(
    jobset: str, namespace: str, zones: str, context: str | None, system: str, as_json: bool, **given: str | None
) -> None:
    """Explain what the provisioner did for a JobSet, what the JobSet waits for, and what happens next."""
    from dataclasses import asdict

    from tpukit.core.clock import SystemClock
    from tpukit.google.gke import Client
    from tpukit.provisioner import explain as explaining

    kube = _kube(context)
    who = _identity(kube, system, zones, **given)
    gke = Client(who.project, who.location, who.cluster)
    said = explaining.explain(kube, gke, SystemClock(), (system, _NAME), (namespace, jobset), who.zones)
    if as_json:
        from tpukit.cli.context import print_json

        print_json(asdict(said))
        return
    click.echo(f"JobSet {namespace}/{jobset} is {said.state}")
    for text in said.impossible:
        click.echo(f"  impossible: {text}")
    for one in said.slices:
        click.echo(f"  {one.job}: {one.state}")
        click.echo(f"    pool   {one.pool}\n    now    {one.waits}")
        if one.tried:
            click.echo(f"    before {one.tried}")
        click.echo(f"    next   {one.next}")
    if not said.slices and not said.impossible:
        click.echo("  no pod of the JobSet waits for a slice, and it has no node pool")
    for at, reason, text in said.done:
        click.echo(f"  {at} {reason}: {text}")


@command.command("init")
@click.argument("project")
@click.argument("cluster")
@click.option("--location", required=True, help="Region or zone of the cluster.")
@click.option(
    "--zones", default="", help="Zones in which to create pools, in this order; required in a regional cluster."
)
@click.option("--image", default="", help="Image of the controller (default: in the repository of the settings).")
@click.option(
    "--service-account",
    default="",
    help="Google account that the provisioner acts as (default: tpu-provisioner@PROJECT...).",
)
@click.option(
    "--node-service-account", default="", help="Google account that nodes run as (default: that of the cluster)."
)
@click.option(
    "--auto-upgrade/--no-auto-upgrade",
    default=None,
    help="Let GKE upgrade the pools, which a release channel requires (default: as the cluster of the settings).",
)
@click.option("--folder", type=click.Path(path_type=Path, file_okay=False), default=Path("deploy"), show_default=True)
def init(project: str, cluster: str, folder: Path, auto_upgrade: bool | None, **values: str) -> None:
    """Write deploy/PROJECT/CLUSTER and print the remaining steps.

    For the cluster of the settings, which `tpu cluster up` created, its repository, the account of its nodes and its
    release channel are known.
    """
    from tpukit.cluster import gcloud
    from tpukit.cluster.spec import ClusterSpec
    from tpukit.jobs.spec import settings
    from tpukit.provisioner import deployment

    own = settings.load()
    known = own.project == project and (own.context or "").endswith(f"_{cluster}")
    if known and own.repository:
        values["image"] = values["image"] or f"{own.repository}/{_NAME}:1"
    if known:
        nodes = gcloud.email(str(ClusterSpec.fields["gke_sa_name"].default), project)
        values["node_service_account"] = values["node_service_account"] or nodes
    upgrade = known if auto_upgrade is None else auto_upgrade
    made = deployment.write(folder, project, cluster, auto_upgrade=upgrade, **values)
    click.echo(made.path)
    for line in made.next:
        click.echo(line, err=True)


@command.command("check")
@click.argument("probe", type=click.Choice(["live", "ready"]))
@click.option("--port", type=click.IntRange(1, 65535), default=PORT, show_default=True)
def check(probe: str, port: int) -> None:
    """Check the provisioner that runs on this machine."""
    from tpukit.kernel import http

    click.echo(http.check(probe, port, "tpu provisioner run"), err=True)


def _pass_on(wake: threading.Event, to: Any) -> None:
    while True:
        wake.wait()
        wake.clear()
        to()


def _kube(context: str | None) -> Cluster:
    from tpukit.kube import Cluster

    return Cluster(None, context)


def _identity(kube: Cluster, system: str, zones: str = "", **given: str | None) -> Identity:
    from tpukit.core.errors import Denied, NotFound, Unauthenticated
    from tpukit.provisioner import settings
    from tpukit.provisioner.driven_cluster import identity

    named = settings.of_config_map({"zones": zones}).options.zones if zones else ()
    data: dict[str, str] = {}
    if not all(given.values()):
        try:
            data = kube.get("ConfigMap", _NAME, system).get("data") or {}
        except Unauthenticated:
            raise
        except (NotFound, Denied):  # an unreachable cluster raises its own error
            pass
    return identity(given, data, named)
