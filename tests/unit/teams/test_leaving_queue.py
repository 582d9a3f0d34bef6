"""A quota set again while Kueue still holds the previous queue, which is deleted when its last job leaves."""

from __future__ import annotations

import pytest

from support.team_cluster import FakeCluster
from tpukit import catalogue
from tpukit.core.clock import ManualClock
from tpukit.core.errors import NotYet
from tpukit.jobs import render
from tpukit.teams import registry
from tpukit.teams.team import request

SHAPES = {catalogue.find("v4-16"): 4}
ACCOUNT = "jobs"


class Holding(FakeCluster):
    """A cluster whose Kueue deletes no ClusterQueue before `free`, because jobs hold slices of it."""

    def __init__(self, clock: ManualClock, free: float) -> None:
        super().__init__()
        self._clock, self._free = clock, clock.now() + free

    def get(self, kind: str, name: str, namespace: str = "") -> dict:
        found = super().get(kind, name, namespace)
        if "deletionTimestamp" in found["metadata"] and self._clock.now() >= self._free:
            super().delete(kind, name, namespace, uid=found["metadata"]["uid"])
            return super().get(kind, name, namespace)
        return found

    def delete(self, kind: str, name: str, namespace: str = "", *, uid: str) -> None:
        if kind != "ClusterQueue" or self._clock.now() >= self._free:
            super().delete(kind, name, namespace, uid=uid)
        else:
            self.objects[kind, "", name]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"

    def apply(self, document: dict) -> dict:
        """Keep the deletion mark of an object, whatever else changes in it."""
        meta = document["metadata"]
        there = self.objects.get((document["kind"], meta.get("namespace", ""), meta["name"]), {"metadata": {}})
        mark = {key: there["metadata"][key] for key in ("deletionTimestamp",) if key in there["metadata"]}
        return super().apply({**document, "metadata": {**meta, **mark}})


def holding(seconds: float) -> tuple[Holding, ManualClock]:
    clock = ManualClock()
    cluster = Holding(clock, seconds)
    for document in render.queues(SHAPES, ["research"], cpus=30, memory_gb=100):
        cluster.apply(document)
    return cluster, clock


def add(cluster: FakeCluster, clock: ManualClock, name: str, **options: list[str]) -> None:
    registry.apply(cluster, registry.plan(cluster, request(name, **options), ACCOUNT), ACCOUNT, clock)


def test_quota_given_again_while_the_queue_of_the_last_one_goes_is_there_to_stay():
    cluster, clock = holding(60.0)
    for asked in ("v4-16=2", "none", "v4-16=1"):
        add(cluster, clock, "vision", quota=[asked])
    clock.sleep(600.0)
    assert "deletionTimestamp" not in cluster.get("ClusterQueue", "vision")["metadata"]
    (team,) = registry.read_teams(cluster, ACCOUNT, "vision")
    assert team.quota == {"v4-2x2x2": 1}


def test_quota_given_again_while_jobs_hold_the_last_one_is_refused_for_now_and_changes_nothing():
    cluster, clock = holding(10_000.0)
    add(cluster, clock, "vision", quota=["v4-16=2"])
    add(cluster, clock, "vision", quota=["none"])
    before = cluster.list("ClusterQueue")
    with pytest.raises(NotYet, match="ClusterQueue vision"):
        add(cluster, clock, "vision", quota=["v4-16=1"])
    assert cluster.list("ClusterQueue") == before


class Raced(FakeCluster):
    """A cluster in which another person recreates the objects that all teams share, right after they were listed."""

    def list(self, kind: str, namespace: str = "", *, labels: str = "", fields: str = "") -> list[dict]:
        if kind == "ClusterRoleBinding":
            self.at |= {path: "later" for path in self.at if path.endswith("/tpukit-member")}
        return super().list(kind, namespace, labels=labels, fields=fields)


def test_last_team_takes_along_what_all_teams_share_but_not_what_was_recreated_meanwhile():
    cluster, clock = Raced(), ManualClock()
    for document in render.queues(SHAPES, ["research"], cpus=30, memory_gb=100):
        cluster.apply(document)
    add(cluster, clock, "vision")
    paths = [kind.path(name=name) for kind, name in registry._SHARED]
    cluster.at = dict.fromkeys(paths, "first")
    (team,) = registry.read_teams(cluster, ACCOUNT, "vision")
    registry.remove(cluster, team, ACCOUNT, clock)
    assert cluster.at == {path: "later" for path in paths if path.endswith("/tpukit-member")}
    assert len(cluster.at) == 1


def test_egress_policy_that_is_no_longer_wanted_is_deleted_by_its_uid():
    cluster, clock = holding(0.0)
    add(cluster, clock, "vision", egress=["10.0.0.0/8"])
    kind, name = registry._EGRESS_POLICY
    cluster.at[kind.path("vision", name)] = "first"
    add(cluster, clock, "vision", egress=["unlimited"])
    assert not cluster.at
