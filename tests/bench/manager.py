"""The job manager of a large group: a thousand TPU VMs in four zones, and hundreds of jobs in the store."""

from __future__ import annotations

import shutil
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from measure import command
from rows import Row, at_most, least_cpu
from tpu_api import TpuApi

VMS, JOBS, WINDOWS = 1_000, 500, 60
ZONES = ("us-central1-b", "us-east1-d", "us-east5-a", "europe-west4-a")
PROJECT = "bench-project"
TIMES = 7


def measure(tpu: str, env: Mapping[str, str], home: Path, cwd: Path) -> list[Row]:
    """Measure the job manager. `home` is an empty $TPUKIT_HOME."""
    shutil.rmtree(home, ignore_errors=True)
    home.mkdir(parents=True)
    settings = home / "settings.yaml"
    settings.write_text(f"project: {PROJECT}\nzone: {ZONES[0]}\n", encoding="utf-8")
    with TpuApi(home / "google", PROJECT, {zone: _nodes(zone) for zone in ZONES}) as cloud:
        own = {"TPUKIT_HOME": str(home), "TPUKIT_SETTINGS": str(settings), **cloud.environment()}
        _fill(home)
        run = partial(command, env={**env, **own}, cwd=cwd)
        cloud.lists = 0
        listed = [run([tpu, "vm", "list"], shows=[f"v6e-8-{VMS - 1}"]) for _ in range(TIMES)]
        calls = cloud.lists / TIMES / len(ZONES)
        checked = [run([tpu, "check", "ada"], shows=[str(WINDOWS), "completed"]) for _ in range(TIMES)]
    shutil.rmtree(home)
    return [
        least_cpu(f"tpu vm list, {VMS:,} TPU VMs in {len(ZONES)} zones", listed, below=3.0),
        at_most("list calls of that for each zone", calls, "", 1, digits=2),
        least_cpu(f"tpu check, {JOBS} jobs in the store, {WINDOWS} of them one's own", checked, below=0.3),
    ]


def _nodes(zone: str) -> list[dict[str, Any]]:
    """Build nodes in the form in which Google lists them."""
    return [
        {
            "name": f"projects/{PROJECT}/locations/{zone}/nodes/team-v6e-8-{number}",
            "acceleratorType": "v6e-8",
            "state": "READY",
            "health": "HEALTHY",
            "runtimeVersion": "v2-alpha-tpuv6e",
            "id": str(number + 1),
            "createTime": "2026-01-01T00:00:00Z",
            "networkEndpoints": [{"ipAddress": f"10.0.{number >> 8}.{number & 255}", "port": 8470}],
            "schedulingConfig": {"spot": True},
            "metadata": {"ssh-keys": "ada:ssh-ed25519 AAAA"},
            "labels": {"team": "vision"},
        }
        for number in range(VMS)
        if ZONES[number % len(ZONES)] == zone
    ]


def _fill(home: Path) -> None:
    """Write the TPU VMs of a group, each with its last job, and one user with many windows."""
    from tpukit.jobs import plan
    from tpukit.jobs.reasons import State
    from tpukit.jobs.records import JOBS as KIND
    from tpukit.jobs.records import Job
    from tpukit.jobs.spec import JobSpec, Settings
    from tpukit.kernel.store.sqlite import SqliteStore
    from tpukit.sharing import inventory, users, windows
    from tpukit.sharing.inventory import Vm

    (home / "state").mkdir()
    store = SqliteStore(home / "state" / "store.db")
    now = time.time()
    users.add(store, "ada", (), now)
    spec = JobSpec.from_json({"name": "train", "tpu": "v6e-8", "command": ["python", "main.py"]})
    document = plan.make(spec, Settings(), "local").to_json()
    for number in range(JOBS):
        name = f"train-{number:03d}"
        own = {"plan": {**document, "id": name}, "state": State.COMPLETED, "ended": now}
        store.create(KIND, name, Job(name, "tpu-vm", "team", "ada", now - JOBS + number, **own))
    for number in range(VMS):
        zone, name = ZONES[number % len(ZONES)], f"team-v6e-8-{number}"
        inventory.register(store, Vm(name, zone, "v6e-8", now, job=f"train-{number % JOBS:03d}", user="ada"), now)
    for number in range(JOBS - WINDOWS, JOBS):
        windows.make(store, "ada", f"train-{number:03d}", now + number, tpu=f"team-v6e-8-{number}")
    store.close()
