"""`tpu fleet logs`: the output of one worker's program."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import click

from tpukit.cli import fleet_flags as flags

if TYPE_CHECKING:
    from tpukit.fleet.act import Acting
    from tpukit.fleet.records import Worker

POLL_SECONDS = 2.0


@click.command()
@click.argument("tpu")
@click.option("-f", "--follow", is_flag=True, help="Print new lines until the program has ended.")
@flags.name_
def logs(tpu: str, follow: bool, name: str | None) -> None:
    """Print the output of a worker's program."""
    from tpukit.cli import fleet_driving

    fleet = name or flags.default_name()
    _worker(fleet, tpu)
    acting = fleet_driving.acting()
    try:
        if follow:
            _follow(acting, fleet, tpu)
        else:
            _print(acting, _worker(fleet, tpu), 0)
    finally:
        acting.reach.channel.close()


def _follow(acting: Acting, fleet: str, tpu: str) -> None:
    """Print the log until its program has ended. Wait while a TPU VM is unreachable or being recreated."""
    from tpukit.cli import context
    from tpukit.core.errors import NotYet, Transient

    attempt, position, reported = -1, 0, ""
    while True:
        worker = _worker(fleet, tpu)
        if worker.attempt != attempt:
            attempt, position = worker.attempt, 0
        wait = "" if attempt else "no program was launched on this TPU VM; `tpu fleet deploy` launches one"
        try:
            position, end = _print(acting, worker, position)
            if end:
                click.echo(f"{worker.tpu}: {end}", err=True)
                return
        except (NotYet, Transient) as error:
            wait = error.message
        if wait and wait != reported:
            click.echo(f"{worker.tpu}: {wait}; waiting", err=True)
        reported = wait
        context.CLOCK.sleep(POLL_SECONDS)


def _print(acting: Acting, worker: Worker, position: int) -> tuple[int, str]:
    """Print the log from `position`; return the new position, and how the program ended, if it has."""
    login = acting.login(worker)
    while True:
        piece, host = acting.reach.log(worker, login, position)
        content = base64.b64decode(piece["bytes"])
        click.echo(content, nl=False)
        position += len(content)
        if not content or position >= piece["size"]:
            if host.lost:
                return position, "the program ended without an exit code"
            return position, "" if host.code is None else f"the program ended with exit code {host.code}"


def _worker(fleet: str, tpu: str) -> Worker:
    from tpukit.cli import context
    from tpukit.core.errors import NotFound
    from tpukit.fleet import driver

    for worker in driver.of(context.store(), fleet):
        if tpu in (worker.tpu, worker.slot):
            return worker
    raise NotFound(f"Fleet `{fleet}` has no TPU VM `{tpu}`", hint="`tpu fleet status` shows those that it has")
