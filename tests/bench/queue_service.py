"""Latency of `tpu queue serve` for applications.

Measures the time until a job is claimed (Google's Firestore emulator), and until the result of a matrix product is
available (one machine, a worker that has JAX loaded).
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from measure import milliseconds
from rows import Row

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from support.firestore_emulator import PROJECT, emulator
from tpukit.cli.queue import MATRIX
from tpukit.code_queue.client import Client
from tpukit.kernel.store.home import open_store

JOBS = 31
RESULTS = 5
SECONDS = 120.0
QUIET_SECONDS = 1.0
_TICKS = os.sysconf("SC_CLK_TCK")


def claims(env: Mapping[str, str], home: Path) -> Row:
    """Measure the time from submission to claim, one job at a time, on a server that waits for jobs."""
    home.mkdir(parents=True)
    with emulator(home / "emulator.log") as running:
        os.environ["FIRESTORE_EMULATOR_HOST"] = running.address
        store = f"firestore://{PROJECT}"
        with _server({**env, "FIRESTORE_EMULATOR_HOST": running.address}, home, store, "--preload", "") as server:
            client = Client(open_store(store, home))
            _result(client, "result = 1")
            waits = []
            for _ in range(JOBS):
                _until_quiet(server)
                sent = time.time()
                job = client.wait(client.submit("result = 1"), SECONDS)
                waits.append(job.started_at - sent)
            client.close()
        del os.environ["FIRESTORE_EMULATOR_HOST"]
    median = statistics.median(waits)
    what = "queue on Firestore's emulator, from submit to claim"
    return Row(what, milliseconds(waits), "–", f"{median * 1e3:.0f} ms at the median", "< 100 ms", median < 0.1)


def results(env: Mapping[str, str], home: Path) -> Row:
    home.mkdir(parents=True)
    with _server(env, home, "sqlite") as server:
        client = Client(open_store("sqlite", home / "state"))
        _result(client, MATRIX)  # Compiles everything, so that later calls use the cache.
        times = []
        for _ in range(RESULTS):
            _until_quiet(server)
            began = time.perf_counter()
            _result(client, MATRIX)
            times.append(time.perf_counter() - began)
        client.close()
    shown = f"{min(times):.2f} s"
    return Row("queue, result of a matrix product, warm", milliseconds(times), "–", shown, "< 1 s", min(times) < 1.0)


@contextmanager
def _server(env: Mapping[str, str], home: Path, store: str, *options: str) -> Iterator[int]:
    """Run a server and yield its process id. On SIGTERM the server releases its jobs by itself."""
    argv = [sys.executable, "-m", "tpukit", "queue", "serve", "--no-http", "--grace", "0", *options]
    env = {**env, "TPUKIT_HOME": str(home), "TPUKIT_STORE": store}
    with (home / "serve.log").open("wb") as log:
        process = subprocess.Popen(argv, env=env, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        yield process.pid
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _result(client: Client, code: str) -> None:
    job = client.wait(client.submit(code), SECONDS)
    if job.status != "completed":
        raise SystemExit(f"bench: a queued job {job.status}: {job.error}")


def _until_quiet(server: int) -> None:
    """Wait until the server and its children use no CPU: the process for the next job has loaded its libraries."""
    until = time.monotonic() + SECONDS
    before = -1.0
    while time.monotonic() < until:
        used = sum(_cpu(pid) for pid in _family(server))
        if abs(used - before) < 0.1 * QUIET_SECONDS:
            return
        before = used
        time.sleep(QUIET_SECONDS)
    raise SystemExit("bench: `tpu queue serve` does not come to rest")


def _family(pid: int) -> list[int]:
    members = [pid]
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in _text(children).split():
            members += _family(int(child))
    return members


def _cpu(pid: int) -> float:
    fields = _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS if fields else 0.0


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:  # it ended meanwhile
        return ""
