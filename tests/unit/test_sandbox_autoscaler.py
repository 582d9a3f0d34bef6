"""Pools that grow for pods that fit nowhere, and shrink when nobody uses them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tpukit.sandbox.autoscaler import IDLE_SECONDS, Autoscaler, Scalable, fits, grown
from tpukit.sandbox.google.emulator_settings import Hooks
from unit.google_world import World, pool

Doc = dict[str, Any]
TAINT = {"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}
LABELS = {"cloud.google.com/gke-tpu-topology": "2x2x4"}
UNSCHEDULABLE = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]


def slice_pool(name: str = "tpu-0", size: int = 0) -> Scalable:
    return Scalable(f"p/{name}", name, LABELS, [TAINT], {"google.com/tpu": "4", "cpu": "240"}, size, 0, 4, True)


def cpu_pool(size: int = 0) -> Scalable:
    return Scalable("p/cpu", "cpu", {"tpukit.dev/pool": "cpu"}, [], {"cpu": "4", "memory": "16G"}, size, 0, 3, False)


def pod(name: str = "a", owner: str = "", chips: int = 4, **spec: Any) -> Doc:
    owners = [{"uid": owner, "controller": True}] if owner else []
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
    """Lists what it was given."""

    def __init__(self) -> None:
        self.things: dict[str, list[Doc]] = {"Pod": [], "Node": []}

    def list(self, kind: str, *, fields: str = "") -> list[Doc]:
        return [one for one in self.things[kind] if "=Pending" not in fields or one["status"]["phase"] == "Pending"]


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


def test_pool_that_is_not_autoscaled_stays_as_it_is_and_nobody_is_asked(world):
    world.ask("POST", world.cluster(), pool())
    world.pass_time(1)
    Autoscaler(world.cloud, lambda: pytest.fail("nothing to be scaled")).tick()
    assert sizes(world) == [4]
