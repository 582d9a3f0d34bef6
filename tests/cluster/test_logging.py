"""Google's data on pods of a real cluster: their logs after deletion, and the reasons for missing nodes."""

from __future__ import annotations

import shutil
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from support.box import TEAM, ZONE, Box, sandbox, until
from support.person import Person
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import Reason
from tpukit.places.gke.capacity import shortage
from tpukit.places.gke.cloud_logging import Printed, Wanted, Where, host_of, read
from tpukit.places.gke.logging_api import ENDPOINT, TOKEN

LINES = 1200  # more than a page
PRINTS = """
import os, pathlib, sys, time
host, attempt = os.environ["TPU_WORKER_ID"] + os.environ["MEGASCALE_SLICE_ID"], os.environ["TPUKIT_ATTEMPT"]
for number in range(int(sys.argv[1])):
    print("attempt", attempt, "host", host, "line", number)
sys.stdout.flush()
shared = pathlib.Path(sys.argv[2])
(shared / f"{attempt}-{host}").touch()
while len(list(shared.glob(f"{attempt}-*"))) < 4:
    time.sleep(0.1)
if attempt == "0":
    sys.exit(134)
"""
"""Hosts of two slices that print, wait for each other, and lose their first attempt."""


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with sandbox(tmp_path_factory.mktemp("home"), "logging") as made:
        made.furnish()
        yield made


@pytest.fixture
def where(box: Box, monkeypatch: pytest.MonkeyPatch) -> Where:
    """Point the log reader to the sandbox, as `tpu sandbox shell` does."""
    monkeypatch.setenv(ENDPOINT, f"http://127.0.0.1:{box.place.ports['google']}/logging/v2/")
    monkeypatch.setenv(TOKEN, box.place.token)
    return Where.of(f"sandbox-{box.name}", "tpu-project")


def by_host(lines: Iterator[Printed]) -> dict[str, list[str]]:
    texts = defaultdict(list)
    for line in lines:
        texts[line.host].append(line.text)
    return dict(texts)


def attempt(where: Where, made: Plan, restart: int) -> dict[str, list[str]]:
    return by_host(read(where, Wanted(TEAM, made.id, restart, container="host")))


def test_every_line_of_every_host_is_read_attempt_by_attempt_after_the_pods_are_gone(box, where):
    (box.place.path / "google" / "buckets" / "shared").mkdir(parents=True)
    mounts = [{"bucket": "shared", "path": "/shared", "read_only": False}]  # a host's root is read-only
    rules = {"restarts": 1, "grace": "5s"}
    made = box.send("prints", "python", "-c", PRINTS, str(LINES), "/shared", max=rules, mounts=mounts)
    assert box.ended(made) == "Completed"
    hosts = {host_of(pod["metadata"]["name"]) for pod in box.pods(made)}
    assert len(hosts) == 4
    box.cluster.delete("JobSet", made.id, made.team)
    until(lambda: not box.pods(made))
    until(lambda: not list((box.place.path / "agent" / "pods").glob(f"{TEAM}_{made.id}*")))
    for restart in (0, 1):
        said = attempt(where, made, restart)
        assert said.keys() == hosts
        for lines in said.values():
            own = [line for line in lines if line.startswith("attempt ")]
            who = own[0].split()[3]
            assert own == [f"attempt {restart} host {who} line {number}" for number in range(LINES)]


def test_job_that_ended_while_nobody_looked_shows_its_true_end_and_all_its_lines_after_its_jobset_is_gone(box):
    ada = Person(box.home / "ada", box.place.kubeconfig)
    ada.settle(project="tpu-project")
    ada.env |= {ENDPOINT: f"http://127.0.0.1:{box.place.ports['google']}/logging/v2/", TOKEN: box.place.token}
    program = "for i in 1 2 3; do echo host $TPU_WORKER_ID line $i; done"
    job = ada.tpu("run", ada.job("unwatched", "sh", "-c", program), "--place", "gke", "--detach").stdout.strip()
    finished = until(lambda: condition(box, job, "Completed"))
    time.sleep(5)  # separates the end from the time of the query
    shown = ada.show(job)
    assert shown["state"] == "completed"
    assert datetime.fromisoformat(shown["ended"]) == datetime.fromisoformat(finished["lastTransitionTime"])

    box.cluster.delete("JobSet", job, TEAM)
    until(lambda: not box.cluster.list("Pod", TEAM, labels=f"jobset.sigs.k8s.io/jobset-name={job}"))
    shutil.rmtree(ada.home / "data")  # the logs do not need it
    again = ada.show(job)
    assert (again["state"], again["ended"]) == ("completed", shown["ended"])
    lines = until(lambda: len(said := ada.tpu("job", "logs", job).stdout.splitlines()) >= 12 and said)
    assert sorted(lines) == sorted(
        f"slice-{slice_}-{host}: host {host} line {number}"
        for slice_ in (0, 1)
        for host in (0, 1)
        for number in (1, 2, 3)
    )


def condition(box: Box, jobset: str, kind: str) -> dict[str, Any] | None:
    conditions = box.cluster.get("JobSet", jobset, TEAM).get("status", {}).get("conditions", [])
    return next((one for one in conditions if one["type"] == kind and one["status"] == "True"), None)


def test_pods_that_get_no_nodes_say_that_there_is_no_capacity(box):
    project = "projects/tpu-project"
    box.ask("POST", "emulator/faults", {"kind": "stockout", "match": ZONE})
    box.ask("POST", f"compute/v1/{project}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
    network = f"{project}/global/networks/net"
    subnet = {"name": "subnet", "ipCidrRange": "10.0.0.0/16", "network": network}
    box.ask("POST", f"compute/v1/{project}/regions/us-central2/subnetworks", subnet)
    clusters = f"container/v1/{project}/locations/us-central2/clusters"
    wanted = {"name": "one", "initialNodeCount": 1, "locations": [ZONE], "network": "net", "subnetwork": "subnet"}
    box.ask("POST", clusters, {"cluster": wanted})
    pool = {
        "name": "scaled",
        "initialNodeCount": 0,
        "config": {"machineType": "ct4p-hightpu-4t"},
        "placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x4"},
        "autoscaling": {"enabled": True, "minNodeCount": 0, "maxNodeCount": 4},
    }
    box.ask("POST", f"{clusters}/one/nodePools", {"nodePool": pool})
    spec = {
        "restartPolicy": "Never",
        "nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x2x4"},
        "tolerations": [{"key": "google.com/tpu", "operator": "Exists"}],
        "containers": [
            {"name": "main", "image": "i", "command": ["true"], "resources": {"limits": {"google.com/tpu": "4"}}}
        ],
    }
    metadata = {"name": "waits", "namespace": "default"}
    box.cluster.create({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec})
    short = until(lambda: shortage(box.cluster.list("Event", "default"), ["waits"]))
    assert short.reason is Reason.NO_CAPACITY
    assert short.message == (
        f"Node scale up in zones {ZONE} associated with this pod failed: GCE out of resources. "
        "Pod is at risk of not being scheduled."
    )
    box.cluster.delete("Pod", "waits", "default", grace=0)
