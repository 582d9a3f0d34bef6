"""A thousand hosts and a hundred jobs in one queue: admitted in order, as many as fit."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from support import crowd
from support.box import sandbox, until
from tpukit.kube import Cluster

Doc = dict[str, Any]
JOB = "jobset.sigs.k8s.io/jobset-name"
HOSTS = crowd.SLICES * crowd.SHAPE.hosts
AT_ONCE = crowd.QUOTA // crowd.SLICES

look = partial(until, seconds=900.0, every=crowd.LOOK_SECONDS)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with sandbox(tmp_path_factory.mktemp("scale"), "scale") as box:
        yield box.cluster


def admitted(workload: Doc) -> bool:
    conditions = workload.get("status", {}).get("conditions", [])
    return any(one["type"] == "QuotaReserved" and one["status"] == "True" for one in conditions)


def place_in_line(workload: Doc) -> tuple[int, str]:
    """Return the sort key of a workload: higher priorities first, then the earliest. Times are whole seconds."""
    return -workload["spec"]["priority"], workload["metadata"]["creationTimestamp"]


def owner(workload: Doc) -> str:
    return str(workload["metadata"]["ownerReferences"][0]["name"])


def test_hundred_jobs_on_a_thousand_hosts_are_admitted_in_order_and_run(cluster: Cluster):
    """Hold the queue while room is made.

    Kueue looks again at jobs that did not fit a second after there is room, and others may be admitted meanwhile.
    """
    crowd.add_hosts(cluster)
    crowd.hold_queue(cluster, hold=True)
    sent = {made.id for made in crowd.send_jobs(cluster, ["sleep", "36000"])}
    workloads = partial(cluster.list, "Workload", crowd.TEAM)
    look(lambda: len(workloads()) == crowd.JOBS)
    assert {owner(one) for one in workloads()} == sent
    assert not any(admitted(one) for one in workloads())
    line = sorted(map(place_in_line, workloads()))
    assert len({priority for priority, _ in line}) == len(crowd.PRIORITIES)

    def running() -> dict[str, int]:
        """Return the running hosts by job."""
        found = cluster.list("Pod", crowd.TEAM, fields="status.phase=Running")
        return dict(Counter(pod["metadata"]["labels"][JOB] for pod in found))

    def run(jobs: int) -> bool:
        return sum(running().values()) == HOSTS * jobs

    def wait(jobs: int) -> bool:
        return len(workloads()) == jobs and not running()

    while line:
        expected, line = line[:AT_ONCE], line[AT_ONCE:]
        crowd.hold_queue(cluster, hold=False)
        look(partial(run, len(expected)))
        first = [one for one in workloads() if admitted(one)]
        assert sorted(map(place_in_line, first)) == expected
        assert running() == {owner(one): HOSTS for one in first}
        crowd.hold_queue(cluster, hold=True)
        for one in first:
            cluster.delete("JobSet", owner(one), crowd.TEAM)
        look(partial(wait, len(line)))
    look(lambda: not cluster.list("Pod", crowd.TEAM) and not cluster.list("JobSet", crowd.TEAM))
