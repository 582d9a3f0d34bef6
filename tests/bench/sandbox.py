"""The sandbox: how soon it is ready, what it takes, and how the commands do on a thousand hosts and a hundred jobs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
import urllib.request
from functools import partial
from pathlib import Path

from measure import environment, wall
from rows import Row, below, least

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import crowd
from tpukit.kube import Cluster
from tpukit.sandbox.google.emulator_settings import EVERY_API, Settings
from tpukit.sandbox.google.server import Emulator
from tpukit.sandbox.tpu_vms.hypervisor import SIMULATED

NAME = "bench"
STARTS = 3
LOOKS = 5
VMS = 1000
IDLE_SECONDS = 10.0


def measure(tpu: str, home: Path, cwd: Path) -> list[Row]:
    """Leaves no sandbox behind."""
    env = {**with_programs(home), "TPUKIT_HOME": str(home / "sandbox")}
    run = partial(wall, env=env, cwd=cwd)
    down = [tpu, "sandbox", "down", "--name", NAME]
    up = [tpu, "sandbox", "up", "--addons", "--name", NAME]
    try:
        run(up, shows=["KUBECONFIG"])
        starts = []
        for _ in range(STARTS):
            run(down, shows=[])
            starts.append(run(up, shows=["KUBECONFIG"]))
        status = subprocess.run(
            [tpu, "sandbox", "status", "--name", NAME, "--json"], env=env, capture_output=True, check=True
        )
        memory = json.loads(status.stdout)["memory_bytes"] / 2**30
        kubeconfig = home / "sandbox" / "data" / "sandbox" / NAME / "kubeconfig"
        print("measuring: a thousand hosts, a hundred jobs", flush=True)
        first = _fill(Cluster(kubeconfig))
        env["KUBECONFIG"] = str(kubeconfig)
        listed = [run([tpu, "job", "list", "--place", "gke", "--all"], shows=[first]) for _ in range(LOOKS)]
        queued = [run([tpu, "team", "queue"], shows=[first]) for _ in range(LOOKS)]
    finally:
        subprocess.run(down, env=env, capture_output=True, check=False)
    crowded = f"on {crowd.POOLS * crowd.SHAPE.hosts:,} hosts and {crowd.JOBS} JobSets"
    return [
        least("tpu sandbox up with JobSet and Kueue, programs built", starts, below=8.0),
        below("sandbox without jobs", memory, " GiB", 1.1, digits=2),
        least(f"tpu job list {crowded}", listed, below=2.0),
        least(f"tpu team queue {crowded}", queued, below=3.0),
        below(f"Google's APIs with {VMS:,} TPU VMs, idle", idle_percent(home), " % of a core", 2.0),
    ]


def idle_percent(home: Path) -> float:
    """CPU time of an emulator of this process that nobody asks anything, in percent of the time that passes. Its TPU
    VMs are without hosts, which are processes of their own."""
    with Emulator(home / "idle", Settings(enabled=EVERY_API)) as google:
        state = google.cloud.state
        body = {"acceleratorType": "v4-8", "runtimeVersion": "tpu-ubuntu2204-base", "labels": {SIMULATED: "yes"}}
        request = urllib.request.Request(
            f"{google.address}/tpu/v2/projects/tpu-project/locations/us-central2-b/nodes?nodeId=vm",
            json.dumps(body).encode(),
            {"Authorization": f"Bearer {google.token}", "Content-Type": "application/json"},
        )
        urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()
        while not (known := [vm for vm in state.all("vm").values() if vm["state"] == "READY"]):
            time.sleep(0.1)
        (first,) = known
        with state.transaction():
            for number in range(1, VMS):
                name = f"{first['name']}-{number}"
                state.put("vm", name, {**first, "name": name, "id": str(int(first["id"]) + number)})
        time.sleep(2.0)  # what that set going
        before, began = time.process_time(), time.monotonic()
        time.sleep(IDLE_SECONDS)
        return 100 * (time.process_time() - before) / (time.monotonic() - began)


def with_programs(home: Path) -> dict[str, str]:
    """The programs are built once for all: where they are not yet, the first start takes minutes and does not count."""
    cache = os.environ.get("XDG_CACHE_HOME") or str(Path.home() / ".cache")
    return environment(home, XDG_CACHE_HOME=cache)


def _fill(cluster: Cluster) -> str:
    """Hosts, and jobs of which those that fit have begun and go on. The id of one."""
    crowd.add_hosts(cluster)
    plans = crowd.send_jobs(cluster, ["sleep", "36000"])
    fit = crowd.QUOTA * crowd.SHAPE.hosts
    due = time.monotonic() + 1800.0
    while sum(pod["status"].get("phase") == "Running" for pod in cluster.list("Pod", crowd.TEAM)) < fit:
        if time.monotonic() > due:
            raise SystemExit("bench: the jobs that fit do not run after half an hour: `tpu team queue` says why")
        time.sleep(crowd.LOOK_SECONDS)
    return plans[0].id
