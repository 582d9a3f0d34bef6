"""What the commands of `tpu fleet` work with: the driver, and the table that people see."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click

from tpukit.errors import TpukitError

if TYPE_CHECKING:
    from rich.console import RenderableType

    from tpukit.fleet.act import Acting
    from tpukit.fleet.records import Worker

TICK_SECONDS = 2.0
LONGEST_TICK = 10.0
"""Between two rounds, however seldom somebody wants to see what came of them."""
LOST = ("PREEMPTED", "TERMINATED", "NOT_FOUND", "STOPPED", "HIDDEN")


def acting() -> Acting:
    from tpukit import catalogue, paths
    from tpukit.cli import context, vms
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
    )


def drive(
    fleet: str,
    over: Callable[[Sequence[Worker]], bool],
    *,
    interval: float = TICK_SECONDS,
    live: bool = False,
    lines: bool = True,
) -> list[Worker]:
    """Until it is over; the workers then. Ctrl-C leaves the fleet as it is, and says so."""
    from tpukit.cli import context
    from tpukit.fleet import dataset
    from tpukit.fleet import driver as fleets
    from tpukit.report import tables

    store, act = context.store(), acting()

    def say(key: str, text: str) -> None:
        if lines:
            context.say(fleet, text)

    driver = fleets.Driver(
        store, act, dataset.count_shards, context.CLOCK, context.holder(), workers=8, report=say, complain=say
    )
    screen = tables.console(stderr=True)
    try:
        with _Screen(screen, live) as show:
            shown = float("-inf")
            while True:
                driver.round(fleet)
                driver.kernel.settle(min(interval, LONGEST_TICK))
                workers = fleets.of(store, fleet)
                ended = over(workers)
                if ended or time.monotonic() - shown >= interval:
                    shown = time.monotonic()
                    show(workers)
                if ended:
                    return workers
                time.sleep(min(interval, LONGEST_TICK))
    except KeyboardInterrupt:
        words = "the fleet goes on without us; lost TPU VMs come again when somebody runs `tpu fleet monitor`"
        click.echo(f"\n{fleet}: {words}", err=True)
        raise
    finally:
        driver.close()
        act.reach.channel.close()


class _Screen:
    """On a terminal the dashboard draws over itself; elsewhere a line is printed when the totals change."""

    def __init__(self, console: Any, live: bool) -> None:
        self._console, self._wanted, self._last = console, live, ""
        self._live: Any = None

    def __enter__(self) -> Callable[[Sequence[Worker]], None]:
        if self._wanted and self._console.is_terminal:
            from rich.live import Live

            self._live = Live(console=self._console, auto_refresh=False)
            self._live.start()
        return self._show

    def __exit__(self, *_: object) -> None:
        if self._live:
            self._live.stop()

    def _show(self, workers: Sequence[Worker]) -> None:
        if self._live:
            self._live.update(dashboard(workers, *totals(workers)), refresh=True)
        elif self._wanted:
            line = summary(workers, *totals(workers))
            if line != self._last:
                self._last = line
                click.echo(line, err=True)


def totals(workers: Sequence[Worker]) -> tuple[int, int]:
    """Samples that are in shards, and shards, of all workers that were ever there: what the bucket has."""
    from tpukit.fleet import dataset

    outputs = {worker.work.output for worker in workers if worker.work}
    try:
        return sum(map(dataset.samples_done, outputs)), sum(map(dataset.count_shards, outputs))
    except TpukitError:
        return 0, 0


def counts(workers: Sequence[Worker]) -> dict[str, int]:
    lost = [one for one in workers if one.tpu_state in LOST or one.state == "failed" or one.silent]
    return {
        "healthy": sum(1 for one in workers if one.tpu_state == "READY" and one not in lost),
        "working": sum(1 for one in workers if one.attempt and one.state == "active" and one not in lost),
        "needs recovery": len(lost),
    }


def summary(workers: Sequence[Worker], samples: int, objects: int) -> str:
    words = ", ".join(f"{name} {number}" for name, number in counts(workers).items())
    return f"{len(workers)} workers: {words}; {samples} samples in {objects} shards"


def dashboard(workers: Sequence[Worker], samples: int, objects: int) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    from tpukit.report.layout import FittedTable, TableField, plain

    fields = [
        TableField("tpu", [plain(one.tpu) for one in workers] + ["total"]),
        TableField("zone", [plain(one.zone) for one in workers] + [""], drop=1),
        TableField("state", [plain(_state(one)) for one in workers] + [""]),
        TableField("samples", [str(one.samples) for one in workers] + [str(samples)]),
        TableField("shards", [str(one.shards) for one in workers] + [str(objects)]),
    ]
    table = FittedTable(fields, heading="message", texts=[*(plain(one.message) for one in workers), ""])
    return Group(table, Text(summary(workers, samples, objects)))


def as_json(workers: Sequence[Worker], samples: int, objects: int) -> dict[str, Any]:
    rows = [
        {
            "tpu": one.tpu,
            "zone": one.zone,
            "type": one.tpu_type,
            "state": one.tpu_state or "NOT_FOUND",
            "worker": one.state,
            "samples": one.samples,
            "shards": one.shards,
            "message": one.message,
        }
        for one in workers
    ]
    return {"workers": rows, "samples": samples, "objects": objects, **counts(workers)}


def _state(worker: Worker) -> str:
    return worker.state if worker.state in ("done", "failed") else worker.tpu_state or "-"
