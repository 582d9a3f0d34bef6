"""The provisioner with hundreds of JobSets, in a sandbox whose pools kwok simulates.

Measures the time from the first JobSet to the last create call, memory, requests to the API server, and the idle cost.

PROVISIONER_GO names a binary of https://github.com/ai-on-gke/tpu-provisioner. It then decides about the same pods at
the same time, with its mock cloud, which does nothing: other load on the machine affects both alike. JOBSETS sets
another number than 500.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path

from rows import Row, at_most, below, counted

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.box import sandbox
from support.provisioned import POOLS, Provisioned, jobset, stop
from tpukit.provisioner import pool_names

JOBSETS = int(os.environ.get("JOBSETS", "500"))
HOSTS = 4
V4_32 = {
    "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
    "cloud.google.com/gke-tpu-topology": "2x2x4",
}
PORT = 9475
CREATE_SECONDS = 120
"""Seconds that GKE takes to create a pool. Hosts appear after most create calls were made, as on GKE."""
SETTLE_SECONDS, IDLE_SECONDS = 15.0, 45.0
PATIENCE = 1800.0
PEER_PATIENCE = 60.0
AS_FAST = 1.1
"""Limit, as a multiple of the peer's time to its last decision."""
_SENDING = 8
_MIRRORED = ("list", "watch")


def measure(home: Path) -> list[Row]:
    """Measure, and leave no sandbox behind."""
    operations = str(2 * JOBSETS)
    words = ("--seconds", f"CREATE_NODE_POOL={CREATE_SECONDS}", "--operations", operations)
    with sandbox(home, "bench", *words) as box:
        world = Provisioned(box, home / "controller", **{"max-operations": operations})
        with world.running("--port", str(PORT)) as process:
            _until(lambda: _metric("tpukit_provisioner_leading") == 1, "it leads")
            with _peer(world) as peer:
                rows = _measure_burst(world, peer)
            return [*rows, *_measure_rest(process.pid)]


def _measure_burst(world: Provisioned, peer: Path | None) -> list[Row]:
    began = _send(world)
    _until(lambda: _metric('tpukit_provisioner_calls_total{act="create",outcome="accepted"}') >= JOBSETS, "all calls")
    asked, calls = _requests(), _calls(world)
    took = max(calls) - began
    print(f"  {len(calls)} create calls after {took:.1f} s", flush=True)
    rows = [
        counted(f"provisioner, {JOBSETS} JobSets ({JOBSETS * HOSTS:,} hosts), to the last create call", took, " s"),
        counted("provisioner, unschedulable to create call, 19 of 20 within", _lag(world), " s"),
        at_most("provisioner, API-server requests a slice, until then", asked / JOBSETS, "", 2.0, digits=2),
    ]
    if peer is None:
        return rows
    due = time.monotonic() + PEER_PATIENCE
    while len(_decisions(peer)) < JOBSETS and time.monotonic() < due:
        time.sleep(1.0)
    decided = sorted(_decisions(peer).values())
    if not decided:
        raise SystemExit("bench: the Go provisioner decided nothing")
    # A pod that was placed meanwhile needs no decision, so both are compared at the same number of decisions.
    theirs, ours = decided[-1] - began, sorted(calls)[len(decided) - 1] - began
    what = f"provisioner / Go provisioner, to {len(decided)} decisions on the same pods"
    met = ours <= AS_FAST * theirs
    print(f"  {len(decided)} decisions: {ours:.1f} s, Go {theirs:.1f} s", flush=True)
    return [
        *rows,
        Row(what, f"{ours:.1f} s", f"{theirs:.1f} s", f"{ours / theirs:.2f}× the time", f"≤ {AS_FAST:g}×", met),
    ]


def _measure_rest(pid: int) -> list[Row]:
    _until(lambda: _metric('tpukit_provisioner_pools{state="retained"}') >= JOBSETS, "all slices are there")
    _until(lambda: _metric('tpukit_provisioner_decisions_total{reason="NodePoolReady"}') >= JOBSETS, "all are told of")
    print(f"  {JOBSETS} slices are there", flush=True)
    time.sleep(SETTLE_SECONDS)
    asked, cpu = _requests(), _cpu_seconds(pid)
    time.sleep(IDLE_SECONDS)
    idle = 100 * (_cpu_seconds(pid) - cpu) / IDLE_SECONDS
    return [
        at_most("provisioner, API-server requests a slice, until all are ready", asked / JOBSETS, "", 2.0, digits=2),
        below("provisioner, peak memory", _peak_mib(pid), " MiB", 150.0),
        below(f"provisioner, idle with {JOBSETS} pools", idle, " % of a core", 1.0, digits=2),
    ]


@contextmanager
def _peer(world: Provisioned) -> Iterator[Path | None]:
    """Yield the log of the running Go provisioner, or None where there is none."""
    binary = os.environ.get("PROVISIONER_GO")
    if not binary:
        yield None
        return
    env = {**world.environment(), "KUBECONFIG": str(world.box.place.kubeconfig), "PROVIDER": "mock"}
    path = world.folder / "go.log"
    options = ["--metrics-bind-address=0", "--health-probe-bind-address=0", "--zap-time-encoding=rfc3339nano"]
    with path.open("w") as log:
        process = subprocess.Popen([binary, *options], env=env, stdout=log, stderr=log, text=True)
    try:
        _until(lambda: "Starting workers" in path.read_text(encoding="utf-8"), "the Go provisioner works")
        yield path
        print(f"  Go provisioner: peak memory {_peak_mib(process.pid):.0f} MiB", flush=True)
    finally:
        stop(process)


def _decisions(log: Path) -> dict[str, float]:
    """Return the time of the first decision on each pod. The log is the only output with the mock cloud."""
    decided: dict[str, float] = {}
    for line in log.read_text(encoding="utf-8").splitlines():
        if "Ensuring node pool" in line and (pod := re.search(r'"name": ?"([^"]+)"', line)):
            decided.setdefault(pod[1], datetime.fromisoformat(line.split()[0]).timestamp())
    return decided


def _send(world: Provisioned) -> float:
    """Send the JobSets, and return the time of the first."""
    documents = [jobset(f"bench-{number:04}", 36000, hosts=HOSTS, selector=V4_32) for number in range(JOBSETS)]
    began = time.time()
    with ThreadPoolExecutor(_SENDING) as threads:
        list(threads.map(world.cluster.create, documents))
    print(f"  {JOBSETS} JobSets sent in {time.time() - began:.1f} s", flush=True)
    return began


def _calls(world: Provisioned) -> list[float]:
    """Return the times of the create calls for pools, as recorded by GKE."""
    asked = world.box.ask("GET", "emulator/requests?method=POST&path=nodePools")
    return [float(one["at"]) for one in asked if one["path"].endswith(POOLS.rpartition("/")[2]) and one["status"] < 300]


def _lag(world: Provisioned) -> float:
    """Return the time from an unschedulable leader to the call for its pool, as recorded in the pool's labels."""
    labels = [one["config"]["labels"] for one in world.pools()]
    lags = sorted(int(one[pool_names.CREATED]) - int(one[pool_names.SINCE]) for one in labels)
    return float(lags[int(len(lags) * 0.95)])


def _metric(name: str) -> float:
    """Return a metric with its labels, as printed."""
    known = re.search(rf"^{re.escape(name)} (\S+)$", _metrics(), re.MULTILINE)
    return float(known[1]) if known else 0.0


def _metrics() -> str:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    except OSError:
        return ""


def _requests() -> float:
    """Return the number of API server requests so far.

    Excludes those for the lease, and the lists and watches behind the mirrors, whose number does not grow with slices.
    """
    lines = re.findall(r'tpukit_api_requests_total\{verb="(\w+)",resource="([\w/]+)"\} ([\d.]+)', _metrics())
    fixed = {"leases", "configmaps"}
    return sum(float(count) for verb, resource, count in lines if resource not in fixed and verb not in _MIRRORED)


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
