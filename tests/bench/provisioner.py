"""The provisioner with JobSets by the hundred, in a sandbox whose pools kwok simulates: from the first JobSet to the
last create call, its memory, what it asks of the API server, and what it takes when nothing happens.

PROVISIONER_GO names a binary of https://github.com/ai-on-gke/tpu-provisioner: it is then measured on the same API
server, with its mock cloud, and with as many JobSets. JOBSETS sets another number than 500.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from rows import Row, below

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from box import sandbox
from provisioned import POOLS, TEAM, Provisioned, jobset, stop

JOBSETS = int(os.environ.get("JOBSETS", "500"))
HOSTS = 4
V4_32 = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
    "cloud.google.com/gke-tpu-topology": "2x2x4",
}
PORT = 9475
CREATE_SECONDS = 120
"""That GKE takes for a pool: hosts come when all create calls were made, as they would."""
IDLE_SECONDS = 60.0
PATIENCE = 1800.0
_SENDING = 8


def measure(home: Path) -> list[Row]:
    """Leaves no sandbox behind."""
    with sandbox(
        home, "bench", "--seconds", f"CREATE_NODE_POOL={CREATE_SECONDS}", "--operations", str(2 * JOBSETS)
    ) as box:
        world = Provisioned(box, home / "controller", **{"max-operations": str(2 * JOBSETS)})
        rows = _measure_go(world) if os.environ.get("PROVISIONER_GO") else []
        return [*rows, *_measure_ours(world)]


def _measure_ours(world: Provisioned) -> list[Row]:
    with world.running("--port", str(PORT), http=True) as process:
        _until(lambda: "tpukit_provisioner_leading 1" in _metrics(), "it leads")
        before = _requests()
        began = _send(world)
        _until(lambda: len(_creates(world)) >= JOBSETS, f"{JOBSETS} create calls")
        asked = _requests() - before
        last = max(_creates(world))
        print(f"  {JOBSETS} create calls after {last - began:.1f} s", flush=True)
        _until(lambda: sum(one["status"] == "RUNNING" for one in world.pools()) >= JOBSETS, "all pools run")
        _until(lambda: _pending(world) == 0, "no leader waits")
        later = _requests() - before
        memory = _peak_mib(process.pid)
        time.sleep(IDLE_SECONDS / 2)  # what is under way comes to rest
        cpu = _cpu_seconds(process.pid)
        time.sleep(IDLE_SECONDS)
        idle = 100 * (_cpu_seconds(process.pid) - cpu) / IDLE_SECONDS
    slices = f"{JOBSETS} JobSets ({JOBSETS * HOSTS:,} hosts)"
    return [
        below(f"provisioner, {slices}, from the first to the last create call", last - began, " s", 120.0),
        below("provisioner, peak memory", memory, " MiB", 150.0),
        below("provisioner, API-server requests a slice, to the last create call", asked / JOBSETS, "", 2.0, digits=2),
        below("provisioner, the same until all pools are ready", later / JOBSETS, "", 2.2, digits=2),
        below(f"provisioner, idle with {JOBSETS} pools", idle, " % of a core", 1.0, digits=2),
    ]


def _measure_go(world: Provisioned) -> list[Row]:
    env = {**world.environment(), "KUBECONFIG": str(world.box.place.kubeconfig), "PROVIDER": "mock"}
    with (world.folder / "go.log").open("w") as log:
        process = subprocess.Popen([os.environ["PROVISIONER_GO"]], env=env, stdout=log, stderr=log)
    try:
        time.sleep(5)
        began = _send(world)
        decisions: dict[str, float] = {}

        def decided() -> bool:
            for event in world.cluster.list("Event", TEAM):
                if event["reason"].startswith("NodePoolCreation"):
                    decisions.setdefault(event["involvedObject"]["name"], time.time())
            return len(decisions) >= JOBSETS

        _until(decided, f"{JOBSETS} decisions of the Go provisioner")
        took, memory = max(decisions.values()) - began, _peak_mib(process.pid)
    finally:
        stop(process)  # type: ignore[arg-type]
    _clear(world)
    return [
        Row("Go provisioner, to its last decision", f"{took:.1f} s", "–", f"{took:.1f} s", "–", True),
        Row("Go provisioner, peak memory", f"{memory:.0f} MiB", "–", f"{memory:.0f} MiB", "–", True),
    ]


def _send(world: Provisioned) -> float:
    """When the first was sent."""
    documents = [jobset(f"bench-{number:04}", 36000, hosts=HOSTS, selector=V4_32) for number in range(JOBSETS)]
    began = time.time()
    with ThreadPoolExecutor(_SENDING) as threads:
        list(threads.map(world.cluster.create, documents))
    print(f"  {JOBSETS} JobSets sent in {time.time() - began:.1f} s", flush=True)
    return began


def _clear(world: Provisioned) -> None:
    for one in world.cluster.list_metadata("JobSet", TEAM):
        world.cluster.delete("JobSet", one["metadata"]["name"], TEAM)
    _until(lambda: not world.cluster.list_metadata("Pod", TEAM), "no pod is left")


def _creates(world: Provisioned) -> list[float]:
    """When GKE was asked for pools, as it recorded it."""
    asked = world.box.ask("GET", "emulator/requests?method=POST&path=nodePools")
    return [float(one["at"]) for one in asked if one["path"].endswith(POOLS.rpartition("/")[2]) and one["status"] < 300]


def _pending(world: Provisioned) -> int:
    leaders = "batch.kubernetes.io/job-completion-index=0"
    return len(world.cluster.list("Pod", TEAM, fields="status.phase=Pending", labels=leaders))


def _metrics() -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _requests() -> float:
    """Of the API server, without those for the lease and the watches, whose number does not grow with slices."""
    lines = re.findall(r'tpukit_api_requests_total\{verb="(\w+)",resource="([\w/]+)"\} ([\d.]+)', _metrics())
    return sum(float(count) for verb, resource, count in lines if resource != "leases" and verb != "watch")


def _peak_mib(pid: int) -> float:
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    peak = re.search(r"VmHWM:\s+(\d+) kB", status)
    assert peak
    return int(peak[1]) / 1024


def _cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _until(true: Callable[[], bool], what: str) -> None:
    due = time.monotonic() + PATIENCE
    while not true():
        if time.monotonic() > due:
            raise SystemExit(f"bench: not within {PATIENCE:.0f} s: {what}")
        time.sleep(1.0)
