"""Commands on a home with years of work: ten thousand jobs in the store and thousands of runs on disk."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from measure import Took, command
from rows import Row, least_cpu

JOBS = 10_000
RUNS = 3_000
LISTS = 9
STARTS = 7
_DAY = 86_400.0
_PATIENCE = 120.0


def measure(tpu: str, env: Mapping[str, str], home: Path, cwd: Path, example: Path) -> list[Row]:
    """Measure the commands. `home` is an empty $TPUKIT_HOME."""
    env = {**env, "TPUKIT_HOME": str(home)}
    shutil.rmtree(home, ignore_errors=True)
    model = _run_once(tpu, env, home, cwd, example)
    _fill(home, model)
    newest = f"hello-{JOBS - 1:05d}"
    run = partial(command, env=env, cwd=cwd)
    listed = [run([tpu, "job", "list"], shows=[newest]) for _ in range(LISTS)]
    started = [_start(tpu, env, cwd) for _ in range(STARTS)]
    shutil.rmtree(home)
    return [
        least_cpu(f"tpu job list, {JOBS:,} jobs in the store", listed, below=0.3),
        least_cpu(f"tpu serve to its first round, {RUNS:,} old runs", started, below=1.0),
    ]


def _run_once(tpu: str, env: Mapping[str, str], home: Path, cwd: Path, example: Path) -> str:
    """Run one job to its end, and return its id."""
    command([tpu, "run", str(example)], env=env, cwd=cwd, shows=["hello-"])
    return next(home.glob("data/runs/*")).name


def _fill(home: Path, model: str) -> None:
    """Copy the job and its files on disk. All but the newest few copies ended long ago."""
    from msgspec.structs import replace

    from tpukit.jobs.records import JOBS as KIND
    from tpukit.kernel.store.sqlite import SqliteStore

    store = SqliteStore(home / "state" / "store.db")
    job = store.get(KIND, model).value
    now = time.time()
    for number in range(JOBS):
        one = f"hello-{number:05d}"
        ago = (JOBS - number) / JOBS * 20 * _DAY  # too recent for `tpu clean`
        attempts = tuple(replace(attempt, started=now - ago, ended=now - ago + 60) for attempt in job.attempts)
        plan = {**job.plan, "id": one}
        store.create(
            KIND, one, replace(job, id=one, created=now - ago, ended=now - ago + 60, plan=plan, attempts=attempts)
        )
    store.close()
    runs = home / "data" / "runs"
    for number in range(JOBS - RUNS, JOBS):
        _copy_run(runs / model, runs / f"hello-{number:05d}", model)


def _copy_run(source: Path, target: Path, model: str) -> None:
    """Copy a run with links, because the contents are the same."""
    for folder, _, files in os.walk(source):
        to = target / Path(folder).relative_to(source)
        to = Path(str(to).replace(model, target.name))
        to.mkdir(parents=True, exist_ok=True)
        for name in files:
            os.link(Path(folder) / name, to / name)


def _start(tpu: str, env: Mapping[str, str], cwd: Path) -> Took:
    """Start the command, and wait until it reports ready, which it does after its first round."""
    before = time.perf_counter()
    argv = [tpu, "serve", "--port", "0"]
    with subprocess.Popen(
        argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stderr is not None
        try:
            port = next(int(match[1]) for line in serving.stderr if (match := re.search(r":(\d+)$", line.strip())))
            until_ready(port)
            return Took(time.perf_counter() - before, cpu_seconds(serving.pid))
        finally:
            serving.terminate()


def until_ready(port: int) -> None:
    from tpukit.core.errors import Transient
    from tpukit.kernel import http

    due = time.monotonic() + _PATIENCE
    while True:
        try:
            http.check("ready", port)
            return
        except Transient:
            if time.monotonic() > due:
                raise SystemExit("bench: `tpu serve` is not ready after two minutes") from None
            time.sleep(0.005)


def cpu_seconds(pid: int) -> float:
    """Return the CPU seconds of a process so far, over all cores."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
