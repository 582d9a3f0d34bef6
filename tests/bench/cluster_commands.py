"""Frequently typed commands, with and without a cluster, compared with `kubectl get jobsets` in the same run.

The cluster is a sandbox with one running job. Each command is measured in LOOKS pairs.
"""

from __future__ import annotations

import os
import subprocess
from functools import partial
from pathlib import Path

from measure import Took, command, in_turn, wall
from rows import Row, as_long, least_cpu

from sandbox import NAME, with_programs

LOOKS = int(os.environ.get("LOOKS", "11"))
TIMES = 10.0
"""Limit of the ratio: kubectl is a compiled program and requests a single list."""
SECONDS, WITHOUT = 1.0, 0.5
JOB = """\
name: bench
tpu: v4-8
command: [sleep, "36000"]
image: python:3.13
workdir: gs://my-runs/bench
"""


def measure(tpu: str, home: Path, cwd: Path) -> list[Row]:
    """Measure, and leave no sandbox behind."""
    env = {**with_programs(home), "TPUKIT_HOME": str(home / "commands")}
    rows = _without(tpu, {**env, "KUBECONFIG": str(home / "missing")}, cwd)
    try:
        up = [tpu, "sandbox", "up", "--slices", "v4-8=1", "--name", NAME]
        wall(up, env=env, cwd=cwd, shows=["KUBECONFIG"])
        env["KUBECONFIG"] = str(home / "commands" / "data" / "sandbox" / NAME / "kubeconfig")
        (home / "bench.yaml").write_text(JOB, encoding="utf-8")
        send = [tpu, "run", str(home / "bench.yaml"), "--place", "gke", "--detach"]
        wall(send, env=env, cwd=cwd, shows=["bench-"])
        rows += _with(tpu, env, cwd)
    finally:
        subprocess.run([tpu, "sandbox", "down", "--name", NAME], env=env, capture_output=True, check=False)
    return rows


def _without(tpu: str, env: dict[str, str], cwd: Path) -> list[Row]:
    """Measure CPU time, so that other programs on this machine do not affect the result."""
    run = partial(command, env=env, cwd=cwd)
    took = [run([tpu, "job", "list", "--json"], shows=["[]"]) for _ in range(LOOKS)]
    return [least_cpu("tpu job list without a cluster", took, below=WITHOUT)]


def _with(tpu: str, env: dict[str, str], cwd: Path) -> list[Row]:
    kubectl = partial(wall, ["kubectl", "get", "jobsets", "--all-namespaces"], env=env, cwd=cwd, shows=["bench"])
    rows = []
    for words in (["job", "list", "--place", "gke"], ["job", "show", "bench"], ["team", "queue"]):
        took: list[Took] = []

        def ours(argv: list[str], took: list[Took]) -> float:
            took.append(command(argv, env=env, cwd=cwd, shows=["bench"]))
            return took[-1].wall

        pairs = in_turn(partial(ours, [tpu, *words], took), kubectl, LOOKS)
        name = f"tpu {' '.join(words[:2])}"
        rows.append(as_long(f"{name} / kubectl get jobsets", pairs, at_most=TIMES))
        rows.append(least_cpu(f"{name} with a cluster", took, below=SECONDS))
    return rows
