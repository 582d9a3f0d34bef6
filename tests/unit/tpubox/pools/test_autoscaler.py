"""Pools that grow for pods that fit nowhere, and shrink when unused."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from support.google_world import World, pool
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.settings import Hooks
from tpubox.pools.autoscaler import BACKOFF_SECONDS, Autoscaler, Backoff, grown
from tpubox.pools.idle_nodes import IDLE_SECONDS, IdleNodes, Shrink
from tpubox.pools.pool_fit import Scalable, fits

Doc = dict[str, Any]
TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
LABELS = {"cloud.google.com/gke-tpu-topology": "2x2x4"}
CPU = {"machineType": "n2-standard-4"}
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def slice_pool(name: str = "tpu-0", size: int = 0) -> Scalable:
    return Scalable(f"p/{name}", LABELS, [TAINT], {"google.com/tpu": "4", "cpu": "240"}, size, 0, 4, True)


def cpu_pool(size: int = 0) -> Scalable:
    return Scalable("p/cpu", {"tpukit.dev/pool": "cpu"}, [], {"cpu": "4", "memory": "16G"}, size, 0, 3, False)


def pod(name: str = "a", owner: str = "", chips: int = 4, **spec: Any) -> Doc:
    owners = [{"kind": "Job", "uid": owner, "controller": True}] if owner else []
    resources = {"limits": {"google.com/tpu": str(chips)}, "requests": {"cpu": "100"}} if chips else {}
    tolerations = [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoSchedule"}]
    return {
        "metadata": {"name": name, "uid": f"uid-{name}", "ownerReferences": owners},
        "spec": {"containers": [{"resources": resources}], "nodeSelector": LABELS, "tolerations": tolerations, **spec},
        "status": {"phase": "Pending", "conditions": UNSCHEDULABLE},
    }


def test_slice_comes_whole_and_one_for_each_job_that_waits():
    pools = [slice_pool("tpu-0"), slice_pool("tpu-1"), slice_pool("tpu-2")]
    waiting = [pod("a-0", "a"), pod("a-1", "a"), pod("b-0", "b")]
    assert grown(pools, waiting) == {"p/tpu-0": 4, "p/tpu-1": 4}


def test_slice_that_is_there_does_not_grow():
    assert grown([slice_pool(size=4)], [pod()]) == {}


def test_other_pools_grow_by_a_node_up_to_the_most_that_they_may_have():
    plain = pod(chips=0, nodeSelector={"tpukit.dev/pool": "cpu"}, tolerations=[])
    assert grown([cpu_pool(0)], [plain]) == {"p/cpu": 1}
    assert grown([cpu_pool(2)], [plain, {**plain, "metadata": {"uid": "other"}}]) == {"p/cpu": 3}
    assert grown([cpu_pool(3)], [plain]) == {}


@pytest.mark.parametrize(
    "wants",
    [
        {"nodeSelector": {"cloud.google.com/gke-tpu-topology": "2x2x2"}},
        {"nodeSelector": {"unknown": "label"}},
        {"tolerations": []},
        {"tolerations": [{"key": "google.com/tpu", "operator": "Equal", "value": "absent"}]},
        {"tolerations": [{"key": "google.com/tpu", "operator": "Exists", "effect": "NoExecute"}]},
        {"containers": [{"resources": {"requests": {"google.com/tpu": "8"}}}]},
        {"containers": [{"resources": {"requests": {"cpu": "200"}}}, {"resources": {"requests": {"cpu": "100"}}}]},
        {"affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": []}}}},
    ],
)
def test_pod_that_would_find_no_place_there_makes_no_pool_grow(wants):
    assert fits(pod(), slice_pool())
    assert not fits(pod(**wants), slice_pool())


class Kubernetes:
    """A Kubernetes API that lists given objects."""

    def __init__(self) -> None:
        self.things: dict[str, list[Doc]] = {"Pod": [], "Node": []}
        self.events: dict[str, Doc] = {}

    def list(self, kind: str, *, fields: str = "") -> list[Doc]:
        return [one for one in self.things[kind] if "=Pending" not in fields or one["status"]["phase"] == "Pending"]

    def apply(self, document: Doc, *, manager: str) -> None:
        assert (document["kind"], manager) == ("Event", "cluster-autoscaler")
        self.events[document["metadata"]["name"]] = document

    def said(self, name: str = "a") -> list[tuple[str, str]]:
        """Return the events about a pod in the order of time."""
        about = [one for one in self.events.values() if one["involvedObject"]["name"] == name]
        return [(one["reason"], one["message"]) for one in sorted(about, key=lambda one: one["lastTimestamp"])]


@pytest.fixture
def kubernetes() -> Kubernetes:
    return Kubernetes()


@pytest.fixture
def world(tmp_path: Path, kubernetes: Kubernetes) -> Iterator[World]:
    def came(made: Any) -> None:
        kubernetes.things["Node"] = [
            {"metadata": {"name": name, "labels": {"cloud.google.com/gke-nodepool": made.name}}} for name in made.nodes
        ]

    with World(tmp_path, Hooks(on_pool_created=came)) as made:
        yield made


def sizes(world: World) -> list[int]:
    return [len(doc["_nodes"]) for doc in world.cloud.state.all("pool").values()]


def test_pool_from_zero_grows_for_a_pod_and_is_at_zero_again_when_nobody_used_it_for_long(world, kubernetes):
    wanted = pool(initialNodeCount=0, autoscaling={"enabled": True, "minNodeCount": 0, "maxNodeCount": 4})
    world.ask("POST", world.cluster(), wanted)
    world.pass_time(1)
    scaler = Autoscaler(world.cloud, lambda: kubernetes)

    def ticked() -> list[int]:
        scaler.tick()
        world.pass_time(1)
        return sizes(world)

    assert ticked() == [0]
    kubernetes.things["Pod"] = [pod()]
    assert ticked() == [4]
    host = kubernetes.things["Node"][0]["metadata"]["name"]
    kubernetes.things["Pod"] = [{**pod(nodeName=host), "status": {"phase": "Running"}}]
    world.pass_time(2 * IDLE_SECONDS)
    assert ticked() == [4]
    kubernetes.things["Pod"] = []
    assert ticked() == [4]
    world.pass_time(IDLE_SECONDS - 10)
    assert ticked() == [4]
    world.pass_time(10)
    assert ticked() == [0]


def on(node: str, kind: str = "Job") -> Doc:
    owners = [{"kind": kind, "uid": "1", "controller": True}]
    return {"metadata": {"ownerReferences": owners}, "spec": {"nodeName": node}}


def shrunk(pool: Scalable, nodes: dict[str, str], *pods: Doc) -> Shrink | None:
    """Return the shrink of a pool that has these pods for long enough."""
    idle = IdleNodes()
    assert idle.shrinks([pool], {pool.full: nodes}, pods, 0.0) == {}
    return idle.shrinks([pool], {pool.full: nodes}, pods, IDLE_SECONDS).get(pool.full)


def test_pool_loses_the_very_nodes_that_nobody_uses():
    nodes = dict.fromkeys(("n0", "n1", "n2"), "a")
    assert shrunk(cpu_pool(3), nodes, on("n1")) == Shrink(1, ("n0", "n2"))
    assert shrunk(cpu_pool(3), nodes, on("n0"), on("n1"), on("n2")) is None


def test_pod_of_a_daemon_set_is_no_use_of_a_node():
    assert shrunk(cpu_pool(1), {"n0": "a"}, on("n0", "DaemonSet")) == Shrink(0)
    assert shrunk(slice_pool(size=4), dict.fromkeys("abcd", "z"), on("a", "DaemonSet")) == Shrink(0)


def test_slice_of_several_hosts_stays_while_one_of_them_is_used():
    assert shrunk(slice_pool(size=4), dict.fromkeys("abcd", "z"), on("a")) is None


def test_pool_in_two_zones_loses_as_many_nodes_in_each():
    nodes = {"n0": "a", "n1": "a", "n2": "b", "n3": "b"}
    assert shrunk(cpu_pool(2), nodes, on("n0")) == Shrink(1, ("n1", "n2"))
    assert shrunk(cpu_pool(2), nodes, on("n0"), on("n1")) is None


def test_pool_keeps_as_many_nodes_as_it_must_have():
    least = replace(cpu_pool(3), least=2)
    assert shrunk(least, dict.fromkeys(("n0", "n1", "n2"), "a"), on("n1")) == Shrink(2, ("n0",))


def test_idle_node_leaves_its_pool_and_the_used_one_stays(world, kubernetes):
    scaling = {"enabled": True, "minNodeCount": 0, "maxNodeCount": 3}
    world.ask("POST", world.cluster(), pool(initialNodeCount=3, autoscaling=scaling, placementPolicy=None, config=CPU))
    world.pass_time(1)
    (doc,) = world.cloud.state.all("pool").values()
    last = max(doc["_nodes"])
    kubernetes.things["Pod"] = [{**on(last), "status": {"phase": "Running"}}]
    scaler = Autoscaler(world.cloud, lambda: kubernetes)
    for _ in range(2):
        scaler.tick()
        world.pass_time(IDLE_SECONDS)
    (doc,) = world.cloud.state.all("pool").values()
    assert (list(doc["_nodes"]), doc["_size"]) == ([last], 1)


def test_pool_that_is_not_autoscaled_stays_as_it_is_and_nobody_is_asked(world):
    world.ask("POST", world.cluster(), pool())
    world.pass_time(1)
    Autoscaler(world.cloud, lambda: pytest.fail("nothing to be scaled")).tick()
    assert sizes(world) == [4]


ZONES = "Node scale up in zones us-central2-b associated with this pod failed"
RISK = "Pod is at risk of not being scheduled."


class Scaled:
    """A pool that is scaled from zero, and the time between two ticks."""

    def __init__(self, world: World, kubernetes: Kubernetes) -> None:
        wanted = pool(initialNodeCount=0, autoscaling={"enabled": True, "minNodeCount": 0, "maxNodeCount": 4})
        world.ask("POST", world.cluster(), wanted)
        world.pass_time(1)
        self.world, self.kubernetes = world, kubernetes
        self.scaler = Autoscaler(world.cloud, lambda: kubernetes)

    def tick(self, times: int = 1, seconds: float = 2.0) -> None:
        for _ in range(times):
            self.scaler.tick()
            self.world.pass_time(seconds)

    def reasons(self, name: str = "a") -> list[str]:
        return [reason for reason, _ in self.kubernetes.said(name)]


@pytest.fixture
def scaled(world: World, kubernetes: Kubernetes) -> Scaled:
    return Scaled(world, kubernetes)


def test_pods_are_told_that_a_pool_grows_for_them_and_nothing_more_while_it_comes(scaled, kubernetes):
    kubernetes.things["Pod"] = [pod("a-0", "a"), pod("a-1", "a")]
    scaled.tick(5)
    assert sizes(scaled.world) == [4]
    for name in ("a-0", "a-1"):
        ((reason, message),) = kubernetes.said(name)
        assert reason == "TriggeredScaleUp"
        assert message.startswith(
            "pod triggered scale-up: [{https://www.googleapis.com/compute/v1/projects/tpu-project/"
        )
        assert message.endswith("-grp 0->4 (max: 4)}]")
        assert "/zones/us-central2-b/instanceGroups/gke-one-tpu-0-" in message


@pytest.mark.parametrize(("kind", "why"), [("stockout", "GCE out of resources"), ("quota", "GCE quota exceeded")])
def test_pool_that_cannot_grow_tells_its_pods_why_and_is_left_alone_for_a_while(scaled, kubernetes, kind, why):
    scaled.world.cloud.faults.set(Fault(kind, times=1))
    kubernetes.things["Pod"] = [pod()]
    scaled.tick(5)
    assert sizes(scaled.world) == [0]
    assert kubernetes.said()[1:] == [
        ("FailedScaleUp", f"{ZONES}: {why}. {RISK}"),
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 in backoff after failed scale-up"),
    ]
    assert scaled.reasons()[0] == "TriggeredScaleUp"
    (doc,) = scaled.world.cloud.state.all("pool").values()
    assert doc["status"] == "RUNNING"
    scaled.world.pass_time(BACKOFF_SECONDS)
    scaled.tick(2)
    assert sizes(scaled.world) == [4]
    assert scaled.reasons()[-1] == "TriggeredScaleUp"


def test_backoff_doubles_until_the_longest_and_is_forgotten_after_hours():
    waits, backoff, now = [], Backoff(), 0.0
    for _ in range(5):
        backoff = backoff.longer(now, BACKOFF_SECONDS)
        waits.append(backoff.seconds)
        now = backoff.until
    assert waits == [300, 600, 1200, 1800, 1800]
    assert backoff.longer(now + 4 * 3600, BACKOFF_SECONDS).seconds == 300


def test_pod_that_fits_no_pool_is_told_so_and_how_often(scaled, kubernetes):
    kubernetes.things["Pod"] = [pod(nodeSelector={"unknown": "label"})]
    scaled.tick(40)
    (event,) = kubernetes.events.values()
    assert event["message"] == "pod didn't trigger scale-up: 1 node(s) didn't match Pod's node affinity/selector"
    assert event["count"] == 2
    assert (event["type"], event["source"]) == ("Normal", {"component": "cluster-autoscaler"})


def test_second_job_is_told_that_the_pool_is_full(scaled, kubernetes):
    kubernetes.things["Pod"] = [pod("a-0", "a")]
    scaled.tick(2)
    kubernetes.things["Pod"].append(pod("b-0", "b"))
    scaled.tick()
    assert kubernetes.said("b-0") == [
        ("NotTriggerScaleUp", "pod didn't trigger scale-up: 1 max node group size reached")
    ]
    assert scaled.reasons("a-0") == ["TriggeredScaleUp"]


def test_quota_of_one_pool_does_not_keep_another_from_growing(scaled, kubernetes):
    scaling = {"enabled": True, "minNodeCount": 0, "maxNodeCount": 4}
    pools = "container/v1/projects/tpu-project/locations/us-central2/clusters/one/nodePools"
    scaled.world.ask("POST", pools, pool("tpu-1", initialNodeCount=0, autoscaling=scaling))
    scaled.world.pass_time(1)
    scaled.world.cloud.faults.set(Fault("quota", match="tpu-0"))
    kubernetes.things["Pod"] = [pod("a-0", "a"), pod("b-0", "b")]
    scaled.tick()
    assert sizes(scaled.world) == [0, 4]


def test_failure_is_told_after_the_emulator_was_killed_in_between(scaled, kubernetes):
    scaled.world.cloud.faults.set(Fault("stockout"))
    kubernetes.things["Pod"] = [pod()]
    scaled.tick()
    scaled.scaler = Autoscaler(scaled.world.cloud, lambda: kubernetes)
    scaled.tick()
    assert "FailedScaleUp" in scaled.reasons()


@pytest.mark.parametrize(
    ("rule", "grows"),
    [
        ({"key": "cloud.google.com/reservation-name", "operator": "DoesNotExist"}, True),
        ({"key": "cloud.google.com/gke-tpu-topology", "operator": "DoesNotExist"}, False),
        ({"key": "cloud.google.com/gke-tpu-topology", "operator": "In", "values": ["2x2x4"]}, True),
        ({"key": "cloud.google.com/gke-tpu-topology", "operator": "NotIn", "values": ["2x2x4"]}, False),
        ({"key": "cloud.google.com/gke-tpu-topology", "operator": "Gt", "values": ["1"]}, False),
    ],
)
def test_slice_comes_for_a_pod_whose_node_affinity_it_meets(rule: Doc, grows: bool):
    required = {"nodeSelectorTerms": [{"matchExpressions": [rule]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    assert fits(pod(affinity=affinity), slice_pool()) == grows
