"""`tpu queue`: run Python code sent by applications and return the result."""

from __future__ import annotations

import os
import signal
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tpukit.cli.leaving import Leaving
from tpukit.cli.queue_deploy import deploy, uninstall
from tpukit.cli.queue_view import client, follow, follow_to_end, list_jobs, show

if TYPE_CHECKING:
    from tpukit.code_queue.driver import Starter
    from tpukit.code_queue.worker import Settings

PORT = 9466
REST_PORT = 9467
TICK = 1.0
GRACE = 20.0
DEVICES = """\
import jax
devices = jax.devices()
logger.info(f"available devices: {devices}")
result = f"Found {len(devices)} devices"
"""
MATRIX = """\
import jax.numpy as jnp
x = jnp.ones((1000, 1000))
y = jnp.ones((1000, 1000))
result = jnp.dot(x, y).sum()
logger.info(f"computation result: {result}")
"""


@click.group("queue")
def command() -> None:
    """Run Python code that applications send, and return the results.

    \b
    Examples:
      tpu queue serve                            run what is sent, on this machine
      tpu queue submit program.py --wait         send a file and print its result
      echo 'result = 6 * 7' | tpu queue submit - --wait
      tpu queue list
      tpu queue test                             two jobs: the devices, and a matrix product
      tpu queue rest                             for programs in any language, over HTTP
      tpu queue deploy --team research           in a cluster
    """


for one in (deploy, uninstall, list_jobs, show, follow):
    command.add_command(one)


@command.command()
@click.argument("file", required=False)
@click.option("--code", help="Text of the program, instead of FILE.")
@click.option("--timeout", type=click.FloatRange(min=0, min_open=True), default=300, show_default=True)
@click.option(
    "--priority", type=click.FloatRange(-100, 100), default=0, show_default=True, help="Priority: higher runs first."
)
@click.option("--unique", default="", help="Key that is sent once: a second job with this key is the first one.")
@click.option(
    "--tpu", default="", help="Slice that the job needs, such as v5e-4; a queue without such a slice refuses the job."
)
@click.option("--wait", is_flag=True, help="Follow the job to its end and print its result.")
def submit(
    file: str | None, code: str | None, timeout: float, priority: float, unique: str, tpu: str, wait: bool
) -> None:
    """Send the Python program in FILE (- for standard input). Its id is printed, or with --wait its result.

    The program may use `logger`, and leaves its answer in the variable `result`.
    """
    from tpukit.cli import context

    if (file is None) == (code is None):
        raise click.UsageError("name a FILE (or -), or use --code")
    if code is None:
        code = sys.stdin.read() if file == "-" else Path(str(file)).read_text(encoding="utf-8")
    metadata = {"submitted_by": context.owner(), **({"tpu": tpu} if tpu else {})}
    queue = client()
    job_id = queue.submit(code, timeout=timeout, priority=priority, unique=unique, metadata=metadata)
    click.echo(job_id, err=wait)
    if wait:
        follow_to_end(queue, job_id)


@command.command()
@click.argument("job_id")
def cancel(job_id: str) -> None:
    """Cancel a job: one that waits at once, one that runs as soon as its worker sees the request."""
    job = client().cancel(job_id)
    click.echo(f"{job_id}: {job.status}" + (", will be cancelled" if job.status in ("scheduled", "running") else ""))


@command.command()
@click.argument("job_id")
def retry(job_id: str) -> None:
    """Send a job that has ended again, from the beginning."""
    click.echo(f"{job_id}: {client().retry(job_id).status}")


@command.command()
@click.option("--older-than", default="7d", show_default=True, help="Time since they ended, such as 30m, 12h or 7d.")
def purge(older_than: str) -> None:
    """Remove jobs that ended a while ago."""
    from tpukit.jobs.spec import durations

    try:
        age = durations.parse(older_than)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--older-than") from error
    for job_id in client().purge(older_than=age):
        click.echo(job_id)


@command.command("test")
@click.option("--timeout", type=click.FloatRange(min=1), default=120, show_default=True)
def send_tests(timeout: float) -> None:
    """Send two jobs, the devices and a matrix product, and print their results."""
    queue = client()
    ids = [queue.submit(code, timeout=timeout, challenge_number=0) for code in (DEVICES, MATRIX)]
    for job_id in ids:
        follow_to_end(queue, job_id)


@command.command()
@click.argument("job_id")
@click.option("--results", required=True, help="Folder or gs://BUCKET/PREFIX for results that documents do not hold.")
@click.option("--network", is_flag=True, help="Let code use the network.")
@click.option(
    "--preload",
    default="jax,jax.numpy,numpy",
    show_default=True,
    help="Modules to import before jobs arrive; empty: none.",
)
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=GRACE,
    show_default=True,
    help="Seconds in which to stop after SIGTERM.",
)
@click.option(
    "--host",
    type=click.IntRange(min=0),
    default=0,
    envvar="JOB_COMPLETION_INDEX",
    help="Number of this host in its slice; the first one, 0, writes how the job ended.",
)
def work(job_id: str, host: int, **options: Any) -> None:
    """Run one scheduled job: the command of the pods that `tpu queue serve --team` starts.

    The container limits the memory. On SIGTERM (a node is removed) it returns the job to the queue.
    """
    from tpukit.cli import context
    from tpukit.code_queue.records import SCHEDULED
    from tpukit.code_queue.worker import Worker

    worker = Worker(context.store(), context.holder(), _settings(memory=0, processes=4096, **options), context.say)
    for number in (signal.SIGTERM, signal.SIGINT):
        # Use a separate thread: the interrupted one may hold the lock that leaving needs.
        signal.signal(number, lambda *_: threading.Thread(target=worker.leave, daemon=True).start())
    if host:
        # A host that got SIGTERM has not done its part: 143 fails the slice, and its first host releases the job.
        sys.exit(0 if worker.accompany(job_id) or not worker.leaving else 128 + signal.SIGTERM)
    if not worker.run_one(job_id, SCHEDULED):
        _say(f"{job_id} does not wait for a worker any longer")


@command.command()
@click.option("--workers", type=click.IntRange(min=0), default=1, show_default=True, help="Concurrent jobs; 0: none.")
@click.option(
    "--memory", type=click.FloatRange(min=0.05), default=4.0, show_default=True, help="Memory for each job, in GiB."
)
@click.option(
    "--processes",
    type=click.IntRange(min=1),
    default=256,
    show_default=True,
    help="Most processes and threads of each job.",
)
@click.option("--network", is_flag=True, help="Let code use the network; slices of several hosts need it.")
@click.option(
    "--preload",
    default="jax,jax.numpy,numpy",
    show_default=True,
    help="Modules to import before jobs arrive; empty: none.",
)
@click.option("--team", default="", help="Start a pod for each job, in this team's queue, instead of running it here.")
@click.option("--image", default="", help="Image of those pods.")
@click.option(
    "--tpu",
    default="",
    help="With --team: slice of jobs that name none, such as v5e-4:spot (default: a CPU node). "
    "Otherwise: the slice that this machine is.",
)
@click.option(
    "--start-within",
    type=click.FloatRange(min=1),
    default=25,  # Kueue evicts a pod that has not started in 30: kueue/controller.yaml
    show_default=True,
    help="Minutes in which a pod must have a node; then another one is tried.",
)
@click.option("--results", default="", help="Folder or gs://BUCKET/PREFIX for results that documents do not hold.")
@click.option(
    "--grace",
    type=click.FloatRange(min=0),
    default=GRACE,
    show_default=True,
    help="Seconds in which to stop after SIGTERM.",
)
@click.option(
    "--tick", type=click.FloatRange(min=0.05), default=TICK, show_default=True, help="Seconds between rounds."
)
@click.option("--until-idle", is_flag=True, help="Exit when no job is left.")
@click.option(
    "--port", type=click.IntRange(0, 65535), default=PORT, show_default=True, help="Port of health and metrics."
)
@click.option("--bind", default="127.0.0.1", show_default=True, help="Address of health and metrics.")
@click.option("--no-http", is_flag=True, help="Serve neither.")
@click.option(
    "--check",
    type=click.Choice(["live", "ready"]),
    help="Print the health of the `tpu queue serve` that runs here, and exit.",
)
def serve(
    workers: int,
    team: str,
    image: str,
    tpu: str,
    start_within: float,
    grace: float,
    tick: float,
    until_idle: bool,
    port: int,
    bind: str,
    no_http: bool,
    check: str | None,
    **limits: Any,
) -> None:
    """Run queued jobs on this machine, or in pods of a team, and supervise the queue. Of several supervisors, one acts.

    It can be killed at any moment: the next supervisor runs its jobs again.
    """
    from tpukit.cli import context
    from tpukit.code_queue import slices
    from tpukit.code_queue.driver import Driver
    from tpukit.code_queue.service import Metrics, Service
    from tpukit.code_queue.worker import Worker
    from tpukit.kernel import Leases, http

    if check:
        click.echo(http.check(check, port, "tpu queue serve"), err=True)
        return
    leaving = Leaving()
    store, settings = context.store(), _settings(grace=grace, tpu="" if team else tpu, **limits)
    target = (team, image, tpu, limits["results"], store.address, limits["network"])
    starter = _starter(*target, patience=start_within * 60.0) if team else None
    workers = 0 if team else workers
    driver = Driver(store, context.CLOCK, context.holder(), starter=starter, report=context.say, complain=context.say)
    metrics = Metrics(store, driver.leader.leading, store.now)
    offer = Leases(store, context.holder(), context.CLOCK)
    if settings.tpu and workers:
        offer.hold(slices.offer(settings.tpu, context.holder().name))
        offer.keep()
    crew = [Worker(store, context.holder(), settings, context.say) for _ in range(workers)]
    service = Service(store, driver, crew, context.CLOCK, tick=tick, say=_say, metrics=metrics)
    if not no_http:
        server = http.start(service.loop, metrics, port, bind)
        _say(f"health and metrics on http://{bind}:{server.server_address[1]}")
    crew_words = "1 worker" if workers == 1 else f"{workers} workers"
    _say(f"serving the queue with {f'pods of {team}' if team else crew_words}; Ctrl-C stops")

    def run() -> None:
        try:
            service.run(until_idle=until_idle)
        finally:
            leaving.done()

    rounds = threading.Thread(target=run, name="rounds", daemon=True)
    rounds.start()
    leaving.wait()
    service.stop(grace + 10.0)
    rounds.join(2.0)
    offer.close()
    driver.close()
    _say("stopped; unfinished jobs wait for the next `tpu queue serve`")
    sys.stderr.flush()
    os._exit(0)  # do not wait for threads that hang in an unreachable store


@command.command()
@click.option("--port", type=click.IntRange(0, 65535), default=REST_PORT, show_default=True)
@click.option(
    "--bind",
    default="127.0.0.1",
    show_default=True,
    help="Address to listen on; without TLS, which belongs to the proxy in front.",
)
@click.option(
    "--token-file",
    type=click.Path(path_type=Path),
    help="File with the token that callers send (default: one that tpu makes).",
)
@click.option("--allow", multiple=True, metavar="EMAIL", help="Google account that may use it, too; may be repeated.")
@click.option("--audience", default="", help="Audience of the callers' identity tokens: the address of the service.")
@click.option("--results", default="", help="Folder or gs://BUCKET/PREFIX where workers write large results.")
def rest(port: int, bind: str, token_file: Path | None, allow: tuple[str, ...], audience: str, results: str) -> None:
    """Serve the queue to programs of any language over HTTP. GET /openapi.json describes it.

    \b
    curl -H "Authorization: Bearer $(cat TOKEN-FILE)" localhost:9467/v1/jobs -d '{"code": "result = 6 * 7"}'
    """
    from tpukit.code_queue import rest_server
    from tpukit.code_queue.access import Access, own_token, read_token
    from tpukit.core import paths

    own = paths.state() / "queue" / "rest-token"
    token = read_token(token_file) if token_file else "" if allow else own_token(own)
    if bool(allow) != bool(audience):
        raise click.UsageError("--allow and --audience go together")
    verify = None
    if allow:
        from tpukit.google.identity import IdentityTokens

        verify = IdentityTokens(audience).email
    leaving = Leaving()
    access = Access(token, allow, verify)
    server = rest_server.start(client(), access, results or _results(), port=port, bind=bind)
    shown = str(token_file or own) if token else f"an identity token of {', '.join(allow)}"
    _say(f"the queue is on http://{bind}:{server.port}, for callers with {shown}; Ctrl-C stops")
    leaving.wait()
    server.stop()


def _results() -> str:
    from tpukit.core import paths

    return str(paths.data() / "queue" / "results")


def _starter(team: str, image: str, tpu: str, results: str, store: str, network: bool, *, patience: float) -> Starter:
    from tpukit import catalogue
    from tpukit.code_queue.kube_workers import ClusterStarter
    from tpukit.code_queue.manifest import Target
    from tpukit.core.errors import Invalid
    from tpukit.kube import Cluster

    if not image or not results.startswith("gs://"):
        raise Invalid("pods need --image, and --results gs://BUCKET/PREFIX, because their disks are not retained")
    if "://" not in store:
        hint = "set TPUKIT_STORE=firestore://PROJECT"
        raise Invalid(f"pods cannot reach the store {store} of this machine", hint=hint)
    if tpu:
        catalogue.find(tpu.partition(":")[0])
    target = Target(team, image, store, results, tpu, network, emulator=os.environ.get("FIRESTORE_EMULATOR_HOST", ""))
    return ClusterStarter(Cluster(), target, patience=patience)


def _settings(
    *, memory: float, processes: int, network: bool, preload: str, results: str, grace: float, tpu: str = ""
) -> Settings:
    from tpukit.code_queue import child, slices
    from tpukit.code_queue.worker import Settings
    from tpukit.core import paths
    from tpukit.core.errors import Invalid

    if sys.platform != "linux":
        raise Invalid(
            "queued jobs run only on Linux, which isolates their code",
            hint="serve the queue on Linux; send jobs from anywhere",
        )
    runs = paths.data() / "queue" / "runs"
    child.sweep(runs)
    return Settings(
        runs=runs,
        results=results or _results(),
        cache=paths.cache() / "queue" / "jax",
        limits=child.Limits(memory=int(memory * 2**30), processes=processes, network=network),
        preload=tuple(name for name in preload.split(",") if name),
        grace=grace,
        tpu=slices.parse(tpu)[0] if tpu else "",
    )


def _say(text: str) -> None:
    click.echo(text, err=True)
