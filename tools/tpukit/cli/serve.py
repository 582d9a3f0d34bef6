"""`tpu serve`: drive the jobs that no terminal follows."""

from __future__ import annotations

import os
import sys
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tpukit.cli.leaving import Leaving
from tpukit.core.quantities import counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from tpukit.kernel.store import Store
    from tpukit.serve.forecasts import Forecasts
    from tpukit.serve.metrics import Metrics
    from tpukit.serve.service import Service

WORKERS = 8
LEAVE_SECONDS = 1.0
"""Longest wait on exit; hanging threads are abandoned. Leases of a dead process are free at once."""


@click.command("serve")
@click.option(
    "--parallel", type=click.IntRange(min=1), help="Concurrent jobs on this machine (default: half the cores)."
)
@click.option("--tick", type=click.FloatRange(min=0.05), default=0.5, show_default=True, help="Seconds between rounds.")
@click.option("--until-idle", is_flag=True, help="Exit when no job is left that can be driven from here.")
@click.option("--port", type=click.IntRange(0, 65535), help="Port of health and metrics on loopback (default: 9464).")
@click.option("--page-port", type=click.IntRange(0, 65535), help="Port of the page on loopback (default: 9465).")
@click.option("--no-http", is_flag=True, help="Serve neither health, nor metrics, nor the page.")
@click.option(
    "--check",
    type=click.Choice(["live", "ready"]),
    help="Print the health of the `tpu serve` that runs here, and exit.",
)
@click.option("--install", is_flag=True, help="Write a systemd user unit that runs `tpu serve`.")
@click.option("--uninstall", is_flag=True, help="Remove that unit.")
@click.option("--now", is_flag=True, help="With --install and --uninstall: also start or stop the unit.")
def command(
    parallel: int | None,
    tick: float,
    until_idle: bool,
    port: int | None,
    page_port: int | None,
    no_http: bool,
    check: str | None,
    install: bool,
    uninstall: bool,
    now: bool,
) -> None:
    """Drive jobs that were sent with --detach, and those whose terminal was closed.

    It may be killed at any moment: hosts run on, and the next `tpu serve` carries on where this one stopped. Two at
    once share the work, and each takes over what the other leaves.

    \b
    Examples:
      tpu serve                      in this terminal
      tpu serve --install --now      from now on, in the background (systemd)
      tpu serve --until-idle         until there is nothing left to do
      tpu serve --check ready        check the one that runs here
    """
    from tpukit.kernel import http

    if check:
        click.echo(http.check(check, port or http.PORT), err=True)
    elif install or uninstall:
        _unit(_arguments(parallel, tick, port, page_port, no_http), install, now)
    else:
        _serve(parallel or max(1, (os.cpu_count() or 2) // 2), tick, until_idle, port, page_port, no_http)


def _serve(
    parallel: int, tick: float, until_idle: bool, port: int | None, page_port: int | None, no_http: bool
) -> None:
    from tpukit.cli import context, notify
    from tpukit.serve import presence
    from tpukit.serve.forecasts import Forecasts
    from tpukit.serve.metrics import Metrics
    from tpukit.serve.service import Service

    leaving = Leaving()
    metrics = Metrics(context.store(), context.holder().name)
    driver = context.session(serving=True).driver(
        parallel=parallel, workers=WORKERS, report=context.say, hooks=metrics.hooks()
    )
    driver.leases.hold(presence.lease_name(context.holder()))
    forecasts = Forecasts(context.store(), context.CLOCK)
    beside = {
        "housekeeping": _prune,
        "mirror": _mirror(),
        "presence": _note_presence,
        "predictions": forecasts.keep,
        "notices": notify.notices(_say).round,
    }
    service = Service(context.store(), driver, context.CLOCK, metrics, tick=tick, say=_say, **beside)
    if not no_http:
        _start_http(service, metrics, port)
        _start_page(page_port, forecasts)
    _say("serving; Ctrl-C stops `tpu serve`, jobs keep running")

    def run() -> None:
        try:
            service.run(until_idle=until_idle)
        finally:
            leaving.done()

    # In a separate thread: a signal reaches the main thread even while a round hangs in an unreachable store.
    rounds = threading.Thread(target=run, name="rounds", daemon=True)
    rounds.start()
    leaving.wait()
    service.stop()
    rounds.join(LEAVE_SECONDS / 2)
    driver.kernel.settle(LEAVE_SECONDS / 2)
    closing = threading.Thread(target=driver.close, daemon=True)
    closing.start()
    closing.join(LEAVE_SECONDS)
    if leaving.asked:
        _say("stopped; jobs keep running, start `tpu serve` again to drive them")
    with suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(0)  # do not wait for threads that hang in an unreachable cluster


def _start_http(service: Service, metrics: Metrics, port: int | None) -> None:
    from tpukit.core.errors import Conflict
    from tpukit.kernel import http

    try:
        server = http.start(service, metrics, http.PORT if port is None else port)
    except Conflict as error:
        if port is not None:
            raise
        _say(f"{error}\n  continuing without health and metrics: another `tpu serve` may use the port")
        return
    if port == 0:
        _say(f"health and metrics on http://{http.LOOPBACK}:{server.server_address[1]}")


def _start_page(port: int | None, forecasts: Forecasts) -> None:
    from tpukit.cli import page
    from tpukit.core import paths
    from tpukit.core.errors import TpukitError
    from tpukit.serve.page import page_server

    try:
        served = page_server.start(
            page.site(driven=True, forecasts=forecasts), paths.state(), page_server.PORT if port is None else port
        )
    except TpukitError as error:
        if port is not None:
            raise
        _say(f"{error}\n  continuing without the page")
        return
    if port == 0:
        _say(f"page on port {served.port}; `tpu page` opens it")


def _prune() -> None:
    """Run `tpu clean` with its defaults."""
    from tpukit.cli import context
    from tpukit.core import paths
    from tpukit.jobs import housekeeping

    known = housekeeping.known_jobs(context.store())
    limits = housekeeping.Limits()
    active = housekeeping.active_in(context.store())
    report = housekeeping.run(paths.data(), paths.state(), known, context.CLOCK.now(), limits, active=active)
    prune_store(context.store())
    if report.removed:
        removed = counted(len(report.removed), "item")
        _say(f"removed {removed} of old jobs, {report.freed >> 20} MiB; `tpu clean` lists them")


def prune_store(store: Store) -> None:
    """Remove leases that lapsed long ago, and results of queued jobs that were purged."""
    from tpukit.cli import context
    from tpukit.code_queue.records import TPU_JOBS
    from tpukit.code_queue.results import Results
    from tpukit.core import paths

    store.prune()
    results = paths.data() / "queue" / "results"
    if results.is_dir():
        Results(str(results)).prune(store.keys(TPU_JOBS), context.CLOCK.now())


def _note_presence() -> None:
    from tpukit.cli import context
    from tpukit.serve import presence

    presence.note(context.store(), context.holder(), context.CLOCK.now())


def _mirror() -> Callable[[], None] | None:
    """Return a function that runs `tpu vm mirror` for the sheet of the settings, or None without a sheet."""
    from tpukit.jobs.spec import settings

    sheet = settings.load().inventory_sheet
    if not sheet:
        return None
    written: list[list[str]] = []

    def write() -> None:
        from tpukit.cli import vms

        written[:] = vms.write_sheet(sheet, before=written)

    return write


def _unit(arguments: list[str], install: bool, now: bool) -> None:
    from tpukit.serve import unit

    on = [["daemon-reload"], ["enable", "--now", unit.NAME]]
    off = [["disable", "--now", unit.NAME], ["daemon-reload"]]
    if install:
        click.echo(f"{unit.install(arguments)} is written", err=True)
        lines = on
    else:
        lines = off
        if now:
            unit.systemctl(*off[0])
            lines = off[1:]
        click.echo(f"{unit.uninstall()} is removed", err=True)
    for line in lines:
        if now:
            unit.systemctl(*line)
        else:
            click.echo(f"  systemctl --user {' '.join(line)}", err=True)
    if install:
        click.echo("so that it runs while you are not logged in: loginctl enable-linger", err=True)


def _arguments(parallel: int | None, tick: float, port: int | None, page_port: int | None, no_http: bool) -> list[str]:
    """Return the command-line arguments for the unit's `tpu serve`."""
    named = [("--parallel", parallel), ("--port", port), ("--page-port", page_port)]
    given = [word for name, value in named if value is not None for word in (name, str(value))]
    return [*given, "--tick", str(tick), *(["--no-http"] if no_http else [])]


def _say(text: str) -> None:
    with suppress(OSError):
        click.echo(text, err=True)
