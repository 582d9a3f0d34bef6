"""Commands that a person types all day, with a cluster and without: beside `kubectl get jobsets` in the same run.

The cluster is a sandbox with one job that runs. LOOKS pairs of each.
"""

from __future__ import annotations

import os
import subprocess
import time
from functools import partial
from pathlib import Path

from measure import command, in_turn, wall
from rows import Row, as_long, least, least_cpu

from sandbox import NAME, with_programs
from tpukit.kube import Cluster

LOOKS = 11
TIMES = 6.0
"""Bar of the ratio: kubectl is a compiled program, and asks for less."""
SECONDS, WITHOUT = 1.0, 0.5
TEAM = "tpu-training"
JOBSET = {
    "apiVersion": "jobset.x-k8s.io/v1alpha2",
    "kind": "JobSet",
    "metadata": {"name": "bench", "namespace": TEAM, "labels": {"kueue.x-k8s.io/queue-name": TEAM}},
    "spec": {
        "replicatedJobs": [
            {
                "name": "main",
                "template": {
                    "spec": {
                        "template": {
                            "spec": {
                                "restartPolicy": "Never",
                                "containers": [{"name": "main", "image": "busybox", "command": ["sleep", "36000"]}],
                            }
                        }
                    }
                },
            }
        ]
    },
}


def measure(tpu: str, home: Path, cwd: Path) -> list[Row]:
    """Leaves no sandbox behind."""
    env = {**with_programs(home), "TPUKIT_HOME": str(home / "commands")}
    rows = _without(tpu, {**env, "KUBECONFIG": str(home / "missing")}, cwd)
    try:
        wall([tpu, "sandbox", "up", "--addons", "--name", NAME], env=env, cwd=cwd, shows=["KUBECONFIG"])
        kubeconfig = home / "commands" / "data" / "sandbox" / NAME / "kubeconfig"
        _send(Cluster(kubeconfig))
        rows += _with(tpu, {**env, "KUBECONFIG": str(kubeconfig)}, cwd)
    finally:
        subprocess.run([tpu, "sandbox", "down", "--name", NAME], env=env, capture_output=True, check=False)
    return rows


def _without(tpu: str, env: dict[str, str], cwd: Path) -> list[Row]:
    """Time of the processor: what other programs do to this machine is no part of the answer."""
    run = partial(command, env=env, cwd=cwd)
    took = [run([tpu, "job", "list", "--json"], shows=["[]"]) for _ in range(LOOKS)]
    return [least_cpu("tpu job list without a cluster", took, below=WITHOUT)]


def _with(tpu: str, env: dict[str, str], cwd: Path) -> list[Row]:
    run = partial(wall, env=env, cwd=cwd)
    kubectl = partial(run, ["kubectl", "get", "jobsets", "--all-namespaces"], shows=["bench"])
    rows = []
    for words, shows in (
        (["job", "list", "--place", "gke"], "bench"),
        (["job", "show", f"{TEAM}/bench"], "bench"),
        (["team", "queue"], "bench"),
    ):
        pairs = in_turn(partial(run, [tpu, *words], shows=[shows]), kubectl, LOOKS)
        name = f"tpu {' '.join(words[:2])}"
        rows.append(as_long(f"{name} / kubectl get jobsets", pairs, at_most=TIMES))
        rows.append(least(f"{name} with a cluster", pairs.ours, below=SECONDS))
    return rows


def _send(cluster: Cluster) -> None:
    cluster.create(JOBSET)
    due = time.monotonic() + float(os.environ.get("PATIENCE", "600"))
    while not any(one["metadata"]["name"].startswith("jobset-bench") for one in cluster.list("Workload", TEAM)):
        if time.monotonic() > due:
            raise SystemExit("bench: Kueue does not know the job: `tpu team queue` says why")
        time.sleep(0.5)
