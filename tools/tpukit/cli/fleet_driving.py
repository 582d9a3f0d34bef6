"""The driver of the `tpu fleet` commands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import click

from tpukit.core.clock import SYSTEM

if TYPE_CHECKING:
    from tpukit.fleet.act import Acting
    from tpukit.fleet.records import Worker

TICK_SECONDS = 2.0
LONGEST_TICK = 10.0
"""Longest time between two rounds, even if the interval of the display is longer."""


def acting() -> Acting:
    from tpukit import catalogue
    from tpukit.cli import context, vms
    from tpukit.core import paths
    from tpukit.fleet import dataset
    from tpukit.fleet.act import Acting
    from tpukit.fleet.reach import Reach
    from tpukit.places.tpu_vm import target
    from tpukit.places.tpu_vm.ssh import Ssh

    own, client = vms.settings(), vms.cloud()
    channel = Ssh(paths.data() / "ssh", own.ssh_key)
    mark = target.store_label(context.sender())
    reach = Reach(client, channel, target.login_user(own), own.external_ips, mark)
    return Acting(
        client,
        reach,
        lambda type_: target.runtime_of(catalogue.find(type_), own),
        lambda work: dataset.read(work.archive),
        own.queued,
        own.project or "",
    )


def drive(
    fleet: str,
    over: Callable[[Sequence[Worker]], bool],
    *,
    interval: float = TICK_SECONDS,
    live: bool = False,
) -> list[Worker]:
    """Run rounds until `over`, and return the workers. Ctrl-C leaves the fleet running and prints so."""
    from tpukit.cli import context, fleet_screen
    from tpukit.fleet import driver as fleets
    from tpukit.fleet import progress
    from tpukit.jobs.report import tables

    store, act = context.store(), acting()
    screen = fleet_screen.Screen(tables.console(stderr=True), live=live, interval=interval)

    def say(key: str, text: str) -> None:
        screen.say(fleet, text)

    driver = fleets.Driver(
        store, act, progress.read, context.CLOCK, context.holder(), workers=8, report=say, complain=say
    )
    try:
        with screen:
            shown = float("-inf")
            while True:
                driver.round(fleet)
                driver.kernel.settle(min(interval, LONGEST_TICK))
                workers = fleets.of(store, fleet)
                ended = over(workers)
                if ended or SYSTEM.monotonic() - shown >= interval:
                    shown = SYSTEM.monotonic()
                    screen.show(workers)
                if ended:
                    return workers
                SYSTEM.sleep(min(interval, LONGEST_TICK))
    except KeyboardInterrupt:
        words = "the fleet keeps running; `tpu fleet monitor` recreates lost TPU VMs"
        click.echo(f"\n{fleet}: {words}", err=True)
        raise
    finally:
        driver.close()
        act.reach.channel.close()
