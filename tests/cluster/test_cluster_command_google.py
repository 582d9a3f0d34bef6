"""`tpu cluster` with real Terraform and the real provider against the emulated Google: from nothing to nothing.

The tests follow the life of one environment, in order. A stand-in for kubectl lists running jobs.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import stat
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.quick_provider import quicken
from tpubox.google.compute import stock_and_quota
from tpubox.google.wire.server import Emulator
from tpubox.google.wire.settings import EVERY_API, Settings

ROOT = Path(__file__).resolve().parents[2]
FIXTURES = ROOT / "tests" / "fixtures" / "cluster"
CLUSTER = """\
project_id: tpu-project
region: us-central2
zone: us-central2-b
artifact_repository_bucket_name: tpu-artifacts
network_name: tpu-network
subnet_name: tpu-subnet
cluster_name: tpu-cluster
tpu_type: v4-32
num_tpu_pools: 2
tf_state_bucket: tf-state
force_destroy: true
create_service_accounts: true
"""


class Person:
    def __init__(self, folder: Path, google: Emulator, env: dict[str, str]) -> None:
        self.folder, self.google = folder, google
        modules = shutil.copytree(ROOT / "terraform", folder / "modules", ignore=shutil.ignore_patterns(".terraform*"))
        quicken(modules)
        (folder / "cluster.yaml").write_text(CLUSTER)
        kubectl = folder / "bin" / "kubectl"
        kubectl.parent.mkdir()
        kubectl.write_text(f"#!{sys.executable} -IS\n" + (FIXTURES / "standin.py").read_text())
        kubectl.chmod(kubectl.stat().st_mode | stat.S_IXUSR)
        self.runs(job_on="")
        self.env = {
            **env,
            **google.environment(),
            "PATH": f"{kubectl.parent}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT / "tools"),
            "TPUKIT_HOME": str(folder / "home"),
            "STANDIN_HOME": str(folder),
            "STANDIN_FLAGS": str(FIXTURES / "flags.json"),
        }
        self._make_bucket()

    def _make_bucket(self) -> None:
        headers = {"Authorization": f"Bearer {self.google.token}", "Content-Type": "application/json"}
        body = json.dumps({"name": "tf-state", "location": "us-central2", "versioning": {"enabled": True}}).encode()
        url = f"{self.google.address}/storage/v1/b?project=tpu-project"
        with urllib.request.urlopen(urllib.request.Request(url, body, headers)):
            pass

    def runs(self, job_on: str) -> None:
        node = {"metadata": {"name": "h0", "labels": {"cloud.google.com/gke-nodepool": job_on}}, "status": {}}
        pod = {
            "metadata": {"name": "a", "namespace": "research", "labels": {"job-name": "pretrain"}},
            "spec": {"nodeName": "h0", "containers": []},
            "status": {"phase": "Running"},
        }
        answers = [
            {"to": ["get nodes"], "out": json.dumps({"items": [node]})},
            {"to": ["get pods"], "out": json.dumps({"items": [pod] if job_on else []})},
            {"to": ["get deployments"], "out": json.dumps({"items": []})},
        ]
        (self.folder / "answers.json").write_text(json.dumps(answers))

    def tpu(self, verb: str, *words: str) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tpukit", "cluster", verb, "--modules", "modules", *words]
        return subprocess.run(
            argv, cwd=self.folder, env=self.env, capture_output=True, text=True, stdin=subprocess.DEVNULL
        )

    def run(self, *argv: str) -> None:
        done = subprocess.run(argv, cwd=self.folder, env=self.env, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr

    def pools(self) -> dict[str, str]:
        """Return the etag of every pool, which changes when the pool is recreated."""
        return {name.rpartition("/")[2]: doc["etag"] for name, doc in self.google.cloud.state.all("pool").items()}


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory, terraform_environment: dict[str, str]) -> Iterator[Person]:
    folder = tmp_path_factory.mktemp("person")
    with Emulator(folder / "google", Settings(seconds={"": 0.3}, enabled=EVERY_API)) as google:
        yield Person(folder, google, terraform_environment)


def test_plan_of_an_empty_project_changes_nothing(person):
    done = person.tpu("plan", "--json")
    assert done.returncode == 0, done.stderr
    assert len(json.loads(done.stdout)) > 20
    assert person.pools() == {}


def test_apply_stops_at_a_stock_out_with_the_pool_and_the_way_out(person):
    stock_and_quota.limit_stock(person.google.cloud, "us-central2-b", "v4", 16)
    done = person.tpu("apply", "--yes")
    assert done.returncode == 1
    assert 'google_container_node_pool.this["tpu-node-pool-' in done.stderr
    assert "use another zone" in done.stderr
    assert re.search(r"`terraform -chdir=\S+ untaint ADDRESS`", done.stderr)
    assert "module.cluster.google_container_cluster.this: created after" in done.stderr


def test_apply_again_goes_on_from_there(person):
    stock_and_quota.limit_stock(person.google.cloud, "us-central2-b", "v4", 32)
    done = person.tpu("apply", "--yes")
    assert done.returncode == 0, done.stderr
    assert set(person.pools()) == {"cpu-pool", "tpu-node-pool-0", "tpu-node-pool-1"}


def test_pool_that_the_state_lost_is_taken_in_by_the_line_that_apply_prints_and_then_nothing_changes(person):
    before = person.pools()
    address = 'module.tpu_pools.google_container_node_pool.this["tpu-node-pool-1"]'
    copy = person.folder / "home" / "data" / "clusters" / "tpu-project" / "tpu-cluster" / "gcs"
    person.run("terraform", f"-chdir={copy}", "state", "rm", address)
    done = person.tpu("apply", "--yes")
    assert done.returncode == 1
    assert "GKE has it and Terraform's state does not" in done.stderr
    (line,) = (line for line in done.stderr.splitlines() if line.strip().startswith("terraform "))
    person.run(*shlex.split(line))
    assert "Nothing to change." in person.tpu("apply", "--yes").stderr
    assert person.pools() == before


def test_pool_that_runs_a_job_stays_until_told(person):
    person.runs(job_on="tpu-node-pool-1")
    before = person.pools()
    done = person.tpu("apply", "--yes", "--set", "num_tpu_pools=1")
    assert done.returncode == 1
    assert "tpu-node-pool-1 runs research/pretrain" in done.stderr
    assert person.pools() == before
    done = person.tpu("apply", "--yes", "--set", "num_tpu_pools=1", "--evict")
    assert done.returncode == 0, done.stderr
    assert person.pools() == {name: mark for name, mark in before.items() if name != "tpu-node-pool-1"}


def test_changed_shape_of_a_busy_pool_is_a_replacement_and_refused(person):
    person.runs(job_on="tpu-node-pool-0")
    before = person.pools()
    done = person.tpu("apply", "--yes", "--set", "num_tpu_pools=1", "--set", "tpu_type=v4-16")
    assert done.returncode == 1
    assert "tpu-node-pool-0 runs research/pretrain" in done.stderr
    assert person.pools() == before


def test_status_counts_what_the_state_in_the_bucket_knows(person):
    found = json.loads(person.tpu("status", "--json").stdout)
    assert found["resources"]["count"] > 20
    assert found["pools"]["tpu-node-pool-0"]["jobs"] == ["research/pretrain"]
    assert found["addons"] == {"jobset": None, "kueue": None}


def test_destroy_is_refused_while_a_job_runs_and_then_leaves_nothing(person):
    assert "runs research/pretrain" in person.tpu("destroy", "--name", "tpu-cluster").stderr
    person.runs(job_on="")
    done = person.tpu("destroy", "--name", "tpu-cluster")
    assert done.returncode == 0, done.stderr
    assert {one for one in person.google.cloud.inventory() if "tf-state" not in one} == set()
