"""Node pools that run a job are not deleted."""

from __future__ import annotations

import pytest

from tpukit import catalogue
from tpukit.cluster import busy_pools
from tpukit.cluster.busy_pools import Doomed
from tpukit.cluster.programs import Outcome
from tpukit.core.errors import Conflict

LABEL = "cloud.google.com/gke-nodepool"


def change(kind, name, *actions):
    return {
        "type": kind,
        "address": f"module.x.{kind}.this",
        "change": {"actions": list(actions), "before": {"name": name}},
    }


def node(name, pool, **labels):
    return {"metadata": {"name": name, "labels": {LABEL: pool, **labels}}}


def pod(name, where, *, phase="Running", labels=None, chips=0):
    limits = {"google.com/tpu": str(chips)} if chips else {}
    return {
        "metadata": {"name": name, "namespace": "research", "labels": labels or {}},
        "spec": {"nodeName": where, "containers": [{"resources": {"limits": limits}}]},
        "status": {"phase": phase},
    }


JOBSET = {"jobset.sigs.k8s.io/jobset-name": "pretrain"}
NODES = {"items": [node("n0", "pool-0"), node("n1", "pool-1"), node("c0", "cpu-pool")]}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ([], Doomed()),
        ([change(busy_pools.POOL, "p", "create")], Doomed()),
        ([change(busy_pools.POOL, "p", "update"), change("google_compute_network", "n", "delete")], Doomed()),
        ([change(busy_pools.POOL, "p", "delete")], Doomed(frozenset({"p"}))),
        (
            [change(busy_pools.POOL, "p", "delete", "create"), change(busy_pools.POOL, "q", "create", "delete")],
            Doomed(frozenset("pq")),
        ),
        ([change(busy_pools.CLUSTER, "c", "delete", "create")], Doomed(everything=True)),
    ],
)
def test_doomed_are_pools_that_a_plan_deletes_or_replaces(changes, expected):
    assert busy_pools.doomed({"resource_changes": changes}) == expected


def test_doomed_is_false_only_where_nothing_goes():
    assert not busy_pools.doomed({})
    assert busy_pools.doomed({"resource_changes": [change(busy_pools.CLUSTER, "c", "delete")]})
    assert busy_pools.doomed({"resource_changes": [change(busy_pools.POOL, "p", "delete")]})


@pytest.mark.parametrize(
    ("running", "expected"),
    [
        (pod("a", "n0", labels=JOBSET), {"pool-0": ["research/pretrain"]}),
        (pod("a", "n0", labels={"job-name": "j"}, chips=4), {"pool-0": ["research/j"]}),
        (pod("a", "n0", chips=4), {"pool-0": ["research/a"]}),
        (pod("a", "n0", phase="Pending", labels=JOBSET), {"pool-0": ["research/pretrain"]}),
        (pod("a", "n0", phase="Succeeded", labels=JOBSET), {}),
        (pod("a", "n0", phase="Failed", chips=4), {}),
        (pod("metrics", "n0"), {}),  # a pod of the cluster itself
        (pod("a", "n1", labels=JOBSET), {}),  # another pool
        (pod("a", None, phase="Pending", labels=JOBSET), {}),  # not scheduled yet
    ],
)
def test_busy_are_jobs_that_hold_a_doomed_pool(running, expected):
    assert busy_pools.busy(Doomed(frozenset({"pool-0"})), NODES, {"items": [running]}) == expected


def test_busy_everything_doomed_names_every_job_once_by_pool():
    pods = {"items": [pod(f"p{i}", "n0", labels=JOBSET) for i in range(4)] + [pod("tb", "c0", labels=JOBSET)]}
    assert busy_pools.busy(Doomed(everything=True), NODES, pods) == {
        "cpu-pool": ["research/pretrain"],
        "pool-0": ["research/pretrain"],
    }


def test_refuse_names_pool_and_job_and_the_way_out():
    with pytest.raises(Conflict, match=r"pool-0 runs research/pretrain(?s:.*)--evict"):
        busy_pools.refuse({"pool-0": ["research/pretrain"]})
    busy_pools.refuse({})


def test_unlike_are_pools_that_are_not_wanted_or_have_another_shape():
    v4 = catalogue.find("v4-32")
    labels = {"node.kubernetes.io/instance-type": v4.machine_type, "cloud.google.com/gke-tpu-topology": v4.topology}
    other = {**labels, "cloud.google.com/gke-tpu-topology": "4x4x4"}
    nodes = {
        "items": [
            node("a", "keep", **labels),
            node("b", "reshape", **other),
            node("c", "gone", **labels),
            node("d", "cpu"),
        ]
    }
    assert busy_pools.unlike({"keep": v4, "reshape": v4, "new": v4}, nodes) == Doomed(frozenset({"reshape", "gone"}))


def answering(monkeypatch, *codes):
    """Replace kubectl by one that exits with these codes, and return the list of what it is asked."""
    asked, left = [], list(codes)

    def run(command):
        asked.append(command.argv[4])
        code = left.pop(0)
        # kubectl prints an empty list when it times out.
        return Outcome(code, errors="request timed out" if code else "", output='{"items": []}')

    monkeypatch.setattr(busy_pools.programs, "need", lambda program, hint: program)
    monkeypatch.setattr(busy_pools.programs, "run", run)
    return asked


def test_cluster_that_answers_late_is_asked_again(monkeypatch):
    asked = answering(monkeypatch, 1, 1, 0, 1, 0)
    assert busy_pools.nodes_and_pods("c") == ({"items": []}, {"items": []})
    assert asked == ["nodes"] * 3 + ["pods"] * 2


def test_cluster_that_never_answers_cannot_be_asked_and_nothing_is_assumed(monkeypatch):
    asked = answering(monkeypatch, 1, 1, 1)
    with pytest.raises(Conflict, match="cannot be listed: request timed out"):
        busy_pools.nodes_and_pods("c")
    assert asked == ["nodes"] * 3
