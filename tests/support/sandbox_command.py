"""A sandbox with its own home, and the setup that cluster tests share: pools, queues, jobs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from support.crowd import simulated_pool
from support.patient_cluster import PatientCluster
from tpukit import catalogue
from tpukit.jobs import plan, render
from tpukit.jobs.spec import JobSpec, Settings
from tpukit.places.local import processes as pods

ROOT = Path(__file__).resolve().parents[2]
IMAGE = "us-central2-docker.pkg.dev/my-project-1/images/train@sha256:" + "0" * 64
SETTINGS = Settings.from_json({"artifacts": "gs://my-artifacts", "team": "research"})
V4_16 = catalogue.find("v4-16")


class Box:
    """A sandbox with its own home, controlled with `tpu sandbox`."""

    def __init__(self, home, name):
        self.home, self.name = home, name

    def tpu(self, *words, check=True):
        env = {**os.environ, "TPUKIT_HOME": str(self.home), "PYTHONPATH": str(ROOT / "tools")}
        # The name goes to the innermost command, but not to a command for `shell`.
        ours = len(words) if words[0] != "shell" else 1
        named = [*words[:ours], "--name", self.name, *words[ours:]]
        argv = [sys.executable, "-m", "tpukit", "sandbox", *named]
        done = subprocess.run(argv, env=env, capture_output=True, text=True)
        if check and done.returncode:
            pytest.fail(f"`tpu sandbox {' '.join(words)}`: {done.stderr}")
        return done

    def status(self):
        return json.loads(self.tpu("status", "--json", check=False).stdout)

    @property
    def folder(self):
        return self.home / "data" / "sandbox" / self.name

    @property
    def cluster(self):
        return PatientCluster(self.folder / "kubeconfig")

    def processes(self):
        """Return all processes with the sandbox's folder in their command line or, as a mark, in their environment."""
        named = [int(entry.name) for entry in Path("/proc").glob("[0-9]*") if _mentions(entry, self.folder)]
        return {*named, *pods.strays(self.folder)}

    def kill(self, *components):
        """Kill components without warning, as the kernel does when memory is short."""
        for one in self.status()["components"]:
            if one["name"] in components:
                os.kill(one["pid"], signal.SIGKILL)


def _mentions(process, folder):
    try:
        return os.fsencode(folder) in (process / "cmdline").read_bytes()
    except OSError:
        return False


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sandbox")
    yield folder
    pods.kill_strays(folder)


@pytest.fixture(scope="module")
def box(home):
    sandbox = Box(home, "first")
    sandbox.tpu("up", "--api=*", "--addons", "--seconds=0")
    yield sandbox
    if sandbox.folder.exists():
        sandbox.tpu("down")


@pytest.fixture(scope="module")
def cluster(box):
    """Return a cluster with two pools of a slice each, queues for them, and teams."""
    cluster = box.cluster
    for name in ("pool-0", "pool-1"):
        for node in simulated_pool(name, V4_16):
            cluster.create(node)
    for document in render.queues({V4_16: 2}, ["research", "other"], cpus=8, memory_gb=32):
        cluster.apply(document)
    for team in ("research", "other"):
        account = {"metadata": {"name": SETTINGS.service_account, "namespace": team}}
        cluster.apply({"apiVersion": "v1", "kind": "ServiceAccount", **account})
    return cluster


def planned(**fields):
    spec = {"name": "job", "tpu": "v4-16", "slices": 2, "command": ["python", "train.py"], "image": IMAGE, **fields}
    return plan.make(JobSpec.from_json(spec), SETTINGS, "gke")


def condition_of(thing, kind):
    conditions = thing.get("status", {}).get("conditions", [])
    return next((one["status"] == "True" for one in conditions if one["type"] == kind), False)


def send(cluster, made):
    for document in render.documents(made):
        cluster.apply(document)


def completed(cluster, made):
    return condition_of(cluster.get("JobSet", made.id, made.team), "Completed")


def seen(cluster, made):
    """Return the conditions of all jobs, for the message of a failed wait."""
    kinds = ("JobSet", "Workload", "Job", "Pod", "Node")
    found = [one for kind in kinds for one in cluster.list(kind, *([made.team] if kind != "Node" else []))]
    return {one["metadata"]["name"]: one.get("status", {}).get("conditions", []) for one in found}
