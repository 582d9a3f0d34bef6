"""A sandbox with many hosts: pools simulated by kwok, and idle TPU VMs."""

from __future__ import annotations

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import box_figures
from rows import Row, below, counted

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.box import ZONE, Box, sandbox
from support.crowd import LOOK_SECONDS, is_open
from support.google_world import pool
from support.provisioned import PROJECT, make_cluster
from support.waiting import until
from tpubox.pools.kwok_pools import LABEL
from tpubox.tpu_vms.hypervisor import SIMULATED

POOLS, HOSTS = 500, 4
VMS = 1000
IDLE = 2.0
"""Limit for Google's APIs with this many TPU VMs, in percent of a core."""
SETTLE_SECONDS, IDLE_SECONDS = 10.0, 30.0
PATIENCE = 1800.0
_SENDING = 8


def measure_pools(home: Path) -> list[Row]:
    """Measure, and leave no sandbox behind."""
    with sandbox(home, "bench", "--operations", str(2 * POOLS)) as box:
        pools = make_cluster(box)
        before, began = sum(box_figures.cpu_seconds(box.place).values()), time.monotonic()
        _for_each(partial(_ask_for_pool, box, pools), POOLS)
        ready = until(partial(_open_hosts, box), "all hosts to be open", PATIENCE, every=LOOK_SECONDS)
        took = time.monotonic() - began
        used = sum(box_figures.cpu_seconds(box.place).values()) - before
        memory = box_figures.memory(box.place)
        rest = sum(box_figures.idle(box.place, SETTLE_SECONDS, IDLE_SECONDS).values())
    what, wanted = f"{POOLS} pools that kwok simulates", POOLS * HOSTS
    fits = Row(what, f"{took:.1f} s", "–", f"{ready:,} hosts ready", f"{wanted:,} hosts", ready == wanted)
    return [
        fits,
        counted(f"{what}, CPU time of all processes until then", used, " s"),
        counted(f"{what}, memory of the sandbox (PSS)", memory, " GiB", digits=2),
        counted(f"{what}, CPU of the sandbox without jobs", rest, " % of a core"),
    ]


def measure_vms(home: Path) -> list[Row]:
    """Measure, and leave no sandbox behind. Each host would be a process, so the TPU VMs have none."""
    with sandbox(home, "bench") as box:
        without = box_figures.idle(box.place, SETTLE_SECONDS, IDLE_SECONDS)
        _for_each(partial(_ask_for_vm, box), VMS)
        until(lambda: _ready_vms(box) == VMS, "all TPU VMs to be ready", PATIENCE, every=LOOK_SECONDS)
        found = box_figures.idle(box.place, SETTLE_SECONDS, IDLE_SECONDS)
    what, unit = f"with {VMS:,} TPU VMs, idle", " % of a core"
    all_of_it = counted(f"all of the sandbox {what} / without TPU VMs", sum(found.values()), unit)
    rows = [below(f"Google's APIs {what}", found["google"], unit, IDLE)]
    return [*rows, all_of_it.beside(f"{sum(without.values()):.1f}{unit}")]


def _for_each(ask: partial[None], count: int) -> None:
    with ThreadPoolExecutor(_SENDING) as threads:
        list(threads.map(ask, range(count)))


def _ask_for_pool(box: Box, pools: str, number: int) -> None:
    box.ask("POST", pools, pool(f"tpu-{number:03d}", config={"labels": dict([LABEL])}))


def _open_hosts(box: Box) -> int:
    """Return the number of hosts once enough of them accept pods, else 0."""
    nodes = box.cluster.list("Node")
    return len(nodes) if sum(map(is_open, nodes)) >= POOLS * HOSTS else 0


def _ask_for_vm(box: Box, number: int) -> None:
    vm = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", "labels": {SIMULATED: "yes"}}
    box.ask("POST", f"tpu/v2/projects/{PROJECT}/locations/{ZONE}/nodes?nodeId=vm-{number}", vm)


def _ready_vms(box: Box) -> int:
    path, token, found = f"tpu/v2/projects/{PROJECT}/locations/{ZONE}/nodes?pageSize=1000", "", 0
    while True:
        page = box.ask("GET", f"{path}&pageToken={token}")
        found += sum(vm["state"] == "READY" for vm in page.get("nodes", []))
        if not (token := page.get("nextPageToken", "")):
            return found
