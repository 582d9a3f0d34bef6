"""Throughput of the job queue with 8 processes on one SQLite file, compared with huey, and of `tpu queue serve`."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import queue_service
from rows import Row

PROCESSES = 8
JOBS = 4000
RUNS = 5
SECONDS = 300
SCRIPT = Path(__file__).with_name("queue_cycles.py")


def measure(peers: Path, env: Mapping[str, str], folder: Path) -> list[Row]:
    """Measure the queue. `peers` is the interpreter that has huey."""
    shutil.rmtree(folder, ignore_errors=True)
    return [
        _throughput(peers, env, folder / "cycles"),
        queue_service.claims(env, folder / "claims"),
        queue_service.results(env, folder / "results"),
    ]


def _throughput(peers: Path, env: Mapping[str, str], folder: Path) -> Row:
    """Run both sides in turn, and return the best run of each, which is the least disturbed one."""
    ours, theirs = [], []
    for _ in range(RUNS):
        ours.append(_cycles("tpukit", sys.executable, env, folder))
        theirs.append(_cycles("huey", str(peers), env, folder))
    best = max(ours)
    what = f"queue on SQLite, submit, claim and complete, {PROCESSES} processes / huey"
    result = f"{best:,.0f} a second, {best / max(theirs):.2f}× huey's"
    return Row(what, _shown(ours), _shown(theirs), result, "≥ 1,000 a second", best >= 1000.0)


def _shown(rates: list[float]) -> str:
    return f"{max(rates):,.0f}/s ({min(rates):,.0f}/s at worst)"


def _cycles(side: str, python: str, env: Mapping[str, str], folder: Path) -> float:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    argv = [python, str(SCRIPT), side, str(folder), str(PROCESSES), str(JOBS)]
    done = subprocess.run(argv, env=dict(env), capture_output=True, text=True, timeout=SECONDS)
    if done.returncode:
        raise SystemExit(f"bench: {side}'s queue: {done.stderr[-1000:]}")
    return float(done.stdout)
