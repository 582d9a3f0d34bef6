"""Frequently typed commands, with and without a cluster, compared with `kubectl get jobsets` in the same run.

The cluster is a sandbox, for the commands about jobs with one running job, for those about the environment one that
`tpu cluster up` created there. Each command is measured in LOOKS pairs. The ratio holds on a busy machine; the least of
its seconds shows what a user waits for on a quiet one.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from measure import in_turn, wall
from rows import Row, as_long, least

from sandbox import NAME, with_programs
from support.quick_provider import quicken

ROOT = Path(__file__).resolve().parents[2]
LOOKS = int(os.environ.get("LOOKS", "11"))
PEER = "kubectl get jobsets"
WITHOUT, WITH = 0.5, 1.0
"""Limits of commands about jobs, in seconds, without and with a cluster."""
STATUS, PLAN = 7.7, 7.0
"""Seconds of commands about an environment while they ran `terraform init` each time."""
TIMES = 10.0
"""Limit of the ratio: kubectl is a compiled program and requests a single list."""
SENT, BATCHES = 10, 5
"""Jobs that are sent by one command, and pairs of it, since each leaves its jobs in the queue.

Its limits are half of those of as many commands.
"""
JOB = """\
name: bench
tpu: v4-8
command: [sleep, "36000"]
image: python:3.13
workdir: gs://my-runs/bench-{number}
"""
PROJECT = "my-project-1"
ENVIRONMENT = f"""\
project_id: {PROJECT}
region: us-central2
zone: us-central2-b
cluster_name: bench
network_name: bench
subnet_name: bench
artifact_repository_bucket_name: {PROJECT}-bench
tpu_type: v4-8
num_tpu_pools: 1
"""


@dataclass(frozen=True, slots=True)
class Commands:
    """The commands of one environment, and the peer on the same cluster."""

    tpu: str
    env: Mapping[str, str]
    cwd: Path

    def run(self, *words: str, shows: Sequence[str] = ()) -> float:
        return wall([self.tpu, *words], env=self.env, cwd=self.cwd, shows=shows)

    def peer(self) -> float:
        return wall(["kubectl", "get", "jobsets", "--all-namespaces"], env=self.env, cwd=self.cwd, shows=[])

    def rows(
        self, name: str, ours: Callable[[], float], *, times: float, seconds: float, looks: int = LOOKS
    ) -> list[Row]:
        """Return a row with the ratio to the peer, and one with the least seconds."""
        pairs = in_turn(ours, self.peer, looks)
        return [as_long(f"{name} / {PEER}", pairs, at_most=times), least(name, pairs.ours, below=seconds)]


def measure(tpu: str, home: Path, cwd: Path) -> list[Row]:
    """Measure, and leave no sandbox behind."""
    env = {**with_programs(home), "TPUKIT_HOME": str(home / "commands")}
    rows: list[Row] = []
    for sandbox, part in ((["--slices", "v4-8=1"], _jobs), (["--project", PROJECT], _environment)):
        try:
            wall([tpu, "sandbox", "up", *sandbox, "--name", NAME], env=env, cwd=cwd, shows=["KUBECONFIG"])
            rows += part(tpu, env, home, cwd)
        finally:
            subprocess.run([tpu, "sandbox", "down", "--name", NAME], env=env, capture_output=True, check=False)
    return rows


def _jobs(tpu: str, env: Mapping[str, str], home: Path, cwd: Path) -> list[Row]:
    kubeconfig = home / "commands" / "data" / "sandbox" / NAME / "kubeconfig"
    here = Commands(tpu, {**env, "KUBECONFIG": str(kubeconfig)}, cwd)
    alone = Commands(tpu, {**env, "KUBECONFIG": str(home / "missing"), "TPUKIT_HOME": str(home / "alone")}, cwd)
    files = []
    for number in range(SENT):
        files.append(home / f"bench-{number}.yaml")
        files[-1].write_text(JOB.format(number=number), encoding="utf-8")
    send = partial(here.run, "run", "--place", "gke", "--detach", shows=["bench-"])
    send(str(files[0]))
    found = here.rows(
        "tpu job list without a cluster",
        partial(alone.run, "job", "list", "--json", shows=["[]"]),
        times=TIMES / 2,
        seconds=WITHOUT,
    )
    for words in (["job", "list", "--place", "gke"], ["job", "show", "bench"], ["team", "queue"]):
        ours = partial(here.run, *words, shows=["bench"])
        found += here.rows(f"tpu {' '.join(words[:2])} with a cluster", ours, times=TIMES, seconds=WITH)
    batch = partial(send, *map(str, files))
    half = SENT / 2
    found += here.rows(f"tpu run of {SENT} files", batch, times=half * TIMES, seconds=half * WITH, looks=BATCHES)
    together = in_turn(batch, partial(send, str(files[0])), BATCHES)
    return [*found, as_long(f"tpu run of {SENT} files / of one", together, at_most=half)]


def _environment(tpu: str, env: Mapping[str, str], home: Path, cwd: Path) -> list[Row]:
    """Create an environment with the real Terraform, and measure commands that find nothing to change."""
    modules = home / "modules"
    shutil.rmtree(modules, ignore_errors=True)
    shutil.copytree(ROOT / "terraform", modules, ignore=shutil.ignore_patterns(".terraform*", "*.tfstate*"))
    quicken(modules)
    file = home / "cluster.yaml"
    file.write_text(ENVIRONMENT, encoding="utf-8")
    print_all = "import json, os; print(json.dumps(dict(os.environ)))"
    shell = [tpu, "sandbox", "shell", "--name", NAME, sys.executable, "-c", print_all]
    inside = json.loads(subprocess.run(shell, env=env, cwd=cwd, check=True, capture_output=True, text=True).stdout)
    provider = [sys.executable, str(ROOT / "tools" / "provider" / "build.py")]
    inside["TF_CLI_CONFIG_FILE"] = subprocess.run(
        provider, check=True, stdout=subprocess.PIPE, text=True
    ).stdout.strip()
    here = Commands(tpu, inside, cwd)
    which = ("--modules", str(modules), str(file))
    here.run("cluster", "up", "--yes", *which)
    rows = []
    for verb, shows, seconds in (("status", "v4-8", STATUS), ("plan", "0 to add, 0 to change", PLAN)):
        ours = partial(here.run, "cluster", verb, *which, shows=[shows])
        rows += here.rows(f"tpu cluster {verb}", ours, times=TIMES, seconds=seconds)
    return rows
