"""Files and hosts of a job that runs in a sandbox's cluster."""

from __future__ import annotations

import json
import shutil
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.box import SETTINGS
from tpubox.box.folder import Folder
from tpubox.box.job_hosts import Hosts
from tpukit.core.clock import SystemClock
from tpukit.core.errors import Invalid
from tpukit.drill.gke_site import GkeSite, in_bucket
from tpukit.drill.losses import Loss, What
from tpukit.drill.sites import LocalSite
from tpukit.jobs import plan as planning
from tpukit.jobs.records import Attempt
from tpukit.jobs.spec import JobSpec
from tpukit.jobs.spec.job import Mount
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Pod

WORDS = st.from_regex(r"[a-z][a-z0-9]{2,6}", fullmatch=True)
RUNS = Mount(bucket="my-runs", path="/runs", read_only=False)
JOB = planning.make(JobSpec.from_json({"name": "train", "tpu": "v4-16", "command": ["true"]}), SETTINGS, "gke")


@dataclass
class Box:
    buckets: Path
    hosts: list = field(default_factory=list)
    preempted: list = field(default_factory=list)

    def of_job(self, namespace, job):
        return self.hosts

    def preempt(self, node, grace):
        self.preempted.append((node, grace))


@dataclass
class BoxHost:
    attempt: int
    slice: int
    index: int
    logs: list[Path]
    pids: tuple[int, ...] = (1,)
    pod: str = "pod"
    node: str = "node"


@settings(max_examples=30)
@given(WORDS, st.lists(WORDS, max_size=3), st.lists(WORDS, max_size=3))
def test_workdir_below_a_mount_is_that_folder_of_its_bucket(bucket, around, inside):
    mount = Mount(bucket=bucket, path="/" + "/".join(["m", *around]), read_only=False)
    outer = Mount(bucket="outer", path="/m", read_only=False)
    workdir = "/".join([mount.path, *inside])
    mounts = [mount, outer] if around else [mount]
    assert in_bucket(workdir, mounts) == (bucket, "/".join(inside))
    assert in_bucket(f"gs://{bucket}/{'/'.join(inside)}", ()) == (bucket, "/".join(inside))


@pytest.mark.parametrize(
    ("workdir", "mounts"),
    [
        ("", (RUNS,)),
        ("/scratch/x", (RUNS,)),
        ("/runs-2", (RUNS,)),
        ("/runs/x", (RUNS.replace(read_only=True),)),
    ],
)
def test_workdir_that_goes_with_its_pod_is_refused_with_what_to_write(workdir, mounts):
    with pytest.raises(Invalid, match="would go with the pod"):
        in_bucket(workdir, mounts)


def test_hosts_lines_of_a_pod_that_is_removed_can_still_be_read(tmp_path):
    pod = tmp_path / "pod"
    pod.mkdir()
    (pod / "log").write_text("2026-11-15T00:00:00.0Z stdout F step 1 loss 2.5\n")
    box = Box(tmp_path / "buckets", [BoxHost(0, 0, 1, [pod / "log"])])
    site = GkeSite(tmp_path / "drill", SystemClock(), box)
    (host,) = site.hosts(JOB, Attempt(0, 0, 0), None)
    assert (host.attempt, host.number, host.index, host.pids) == (0, 1, 1, (1,))
    (pod / "log.1").write_text("2026-11-15T00:00:01.0Z stdout F step 2 loss 2.4\n")
    box.hosts[0].logs.append(pod / "log.1")
    site.hosts(JOB, Attempt(0, 0, 0), None)

    shutil.rmtree(pod)
    box.hosts = []
    (host,) = site.hosts(JOB, Attempt(0, 0, 0), None)
    assert host.pids == ()
    assert [site.line(log.read_text().strip()) for log in host.logs] == ["step 1 loss 2.5", "step 2 loss 2.4"]
    site.close()


def test_hosts_two_attempts_ago_are_not_followed_any_more(tmp_path):
    logs = [tmp_path / str(number) for number in range(3)]
    for log in logs:
        log.touch()
    box = Box(tmp_path / "buckets", [BoxHost(number, 0, 0, [log]) for number, log in enumerate(logs)])
    site = GkeSite(tmp_path / "drill", SystemClock(), box)
    assert [host.attempt for host in site.hosts(JOB, Attempt(0, 0, 0), None)] == [1, 2]
    site.close()


def test_losses_that_a_site_cannot_do_say_why(tmp_path):
    preempted = Loss("preempt", What.PREEMPT, ((0, 0),))
    local = LocalSite(tmp_path, SystemClock())
    assert "`term` is the same" in local.impossible(preempted)
    assert not local.impossible(replace(preempted, hosts=((0, 0), (0, 1))))


def test_sandbox_hosts_of_a_job_are_those_that_began_with_attempt_slice_and_processes(tmp_path):
    folder = tmp_path / "agent" / "pods" / "research_train-slice-1-0-x7_uid"
    labels = {"jobset.sigs.k8s.io/jobset-name": "train", "jobset.sigs.k8s.io/job-index": "1"}
    metadata = {"name": "train-slice-1-0-x7", "labels": labels}
    metadata["annotations"] = {"batch.kubernetes.io/job-completion-index": "0"}
    folder.mkdir(parents=True)
    (folder / "pod.json").write_text(json.dumps({"metadata": metadata, "spec": {"nodeName": "node-2"}}))
    hosts = Hosts(Folder(tmp_path, {}))
    assert hosts.of_job("research", "train") == []  # its container does not exist yet

    run = folder / "host" / "0"
    env = {"TPUKIT_FIRST_ATTEMPT": "2", "TPUKIT_RESTARTS": "1"}
    pods.start([Pod(run, (sys.executable, "-S", "-c", "input()"), env, tmp_path)])
    try:
        (host,) = hosts.of_job("research", "train")
        assert (host.attempt, host.slice, host.index, host.node) == (3, 1, 0, "node-2")
        assert host.logs == [run / "log"]
        assert hosts.of_job("research", "other") == []
    finally:
        pods.stop(run, 0)
