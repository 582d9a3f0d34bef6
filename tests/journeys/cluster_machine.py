"""A user's machine with stand-ins for gcloud, kubectl and terraform, which record their calls."""

from __future__ import annotations

import json
import shlex
import stat
import sys
from dataclasses import dataclass
from pathlib import Path

from click.testing import CliRunner

from tpukit.cli import command
from tpukit.core.errors import TpukitError

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "cluster"
RECORDED = (FIXTURES / "apply.jsonl").read_text().splitlines(keepends=True)
PLANNED = "".join(line for line in RECORDED if '"planned_change"' in line or '"operation":"plan"' in line)

CLUSTER = """\
project_id: my-project-1
region: us-central2
zone: us-central2-b
artifact_repository_bucket_name: my-artifacts
network_name: tpu-network
subnet_name: tpu-subnet
cluster_name: tpu-cluster
tpu_type: v4-32
num_tpu_pools: 2
"""

PREVIEW = {
    "resource_changes": [
        {
            "address": "module.network.google_compute_network.this[0]",
            "type": "google_compute_network",
            "change": {"actions": ["create"], "before": None},
        },
        {
            "address": 'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-0"]',
            "type": "google_container_node_pool",
            "change": {"actions": ["create"], "before": None},
        },
    ]
}
"""A preview as Infrastructure Manager exports it."""

PODS = {
    "items": [
        {
            "metadata": {
                "name": "a",
                "namespace": "tpu-training",
                "labels": {"jobset.sigs.k8s.io/jobset-name": "pretrain"},
            },
            "spec": {"nodeName": "h0", "containers": []},
            "status": {"phase": "Running"},
        }
    ]
}
"""A host of a pool that runs a job."""

POOL = "google_container_node_pool"

NODES = {
    "items": [
        {"metadata": {"name": "h0", "labels": {"cloud.google.com/gke-nodepool": "tpu-node-pool-1"}}, "status": {}},
    ]
}
RUNS_A_JOB = (
    {"to": ["kubectl", "get nodes"], "out": json.dumps(NODES)},
    {"to": ["kubectl", "get pods"], "out": json.dumps(PODS)},
)


def shown_plan(*changes):
    return {"to": ["terraform", "show -json"], "out": json.dumps({"resource_changes": list(changes)})}


def preview(*changes):
    return {"to": ["previews export"], "file": json.dumps({"resource_changes": list(changes)})}


def deletes(kind, **before):
    return {"type": kind, "address": "a.b", "change": {"actions": ["delete"], "before": before}}


@dataclass
class Machine:
    """A user's machine: a folder with a cluster file, and stand-ins for the real programs."""

    folder: Path

    def tpu(self, *argv: str) -> Said:
        return self.run("cluster", *argv)

    def run(self, *argv: str) -> Said:
        done = CliRunner().invoke(command, argv, prog_name="tpu")
        if isinstance(done.exception, TpukitError):
            return Said(done.exception.exit_code, done.stdout, f"{done.stderr}tpu: {done.exception}\n")
        if done.exception and not isinstance(done.exception, SystemExit):
            raise done.exception
        return Said(done.exit_code, done.stdout, done.stderr)

    def answer(self, *answers: dict) -> None:
        version = {"to": ["terraform version"], "out": '{"terraform_version": "1.9.0"}'}
        plan = {"to": ["terraform", " plan "], "out": PLANNED}
        shown = {"to": ["terraform", "show -json"], "out": "{}"}
        preview = {"to": ["previews export"], "file": json.dumps(PREVIEW)}
        (self.folder / "answers.json").write_text(json.dumps([*answers, version, plan, shown, preview]))

    def calls(self) -> list[str]:
        log = self.folder / "calls"
        return [shlex.join(json.loads(line)) for line in log.read_text().splitlines()] if log.exists() else []


@dataclass
class Said:
    returncode: int
    stdout: str
    stderr: str


def make(tmp_path, monkeypatch):
    """Return a machine with a cluster file in the working directory of commands."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in ("gcloud", "kubectl", "terraform"):
        program = bin_folder / name
        program.write_text(f"#!{sys.executable} -IS\n" + (FIXTURES / "standin.py").read_text())
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "cluster.yaml").write_text(CLUSTER)
    monkeypatch.chdir(tmp_path)
    for name, value in {
        "PATH": str(bin_folder),
        "TPUKIT_HOME": str(tmp_path / "home"),
        "TPUKIT_SETTINGS": str(tmp_path / "settings.yaml"),
        "STANDIN_HOME": str(tmp_path),
        "STANDIN_FLAGS": str(FIXTURES / "flags.json"),
    }.items():
        monkeypatch.setenv(name, value)
    made = Machine(tmp_path)
    made.answer()
    return made
