"""Fields of node pools: accepted values, refused values, and defaults."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.compute import machine_types
from tpubox.google.gke.versions import VERSIONS
from tpukit.catalogue.zones import CPU_FAMILIES

NEWEST, BEFORE, _ = VERSIONS
METADATA = {"workloadMetadataConfig": {"mode": "GKE_METADATA"}}
GPU = {"accelerators": [{"acceleratorType": "nvidia-tesla-t4", "acceleratorCount": "1"}]}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def cpu_pool(**changes: Any) -> dict[str, Any]:
    config = {"machineType": "n2-standard-4", **changes.pop("config", {})}
    return {"nodePool": {"name": "cpu", "initialNodeCount": 1, "config": config, **changes}}


def scaling(**fields: int) -> dict[str, Any]:
    return {"autoscaling": {"enabled": True, **fields}}


REFUSED = [
    ({"config": {"machineType": "n2-banana"}}, 'Invalid machine type "n2-banana" in zone "us-central2-b"'),
    ({"config": {"machineType": "n2-standard-3"}}, "GCE_NOT_FOUND"),
    ({"config": {"machineType": "n2"}}, "GCE_NOT_FOUND"),
    ({"config": {"imageType": "WINDOWS_XP"}}, "unexpected image_type: WINDOWS_XP."),
    ({"config": {"imageType": "COS"}}, "based on Docker container runtimes is not supported"),
    ({"config": {"diskSizeGb": 1}}, "It must be at least 10"),
    ({"config": {"diskType": "floppy"}}, "'node_pool.config.disk_type': 'floppy'"),
    ({"config": {"labels": {"bad key!": "x"}}}, '"bad key!" is not a valid label key'),
    ({"config": {"labels": {"Upper.example/x": "x"}}}, "is not a valid label key"),
    ({"config": {"labels": {"key": "x y"}}}, '"x y" is not a valid label value'),
    ({"config": {"labels": {"key": "x" * 64}}}, "is not a valid label value"),
    ({"config": {"resourceLabels": {"Team": "a"}}}, "node_pool.config.resource_labels.key"),
    ({"config": {"taints": [{"key": "a b", "value": "x", "effect": "NO_SCHEDULE"}]}}, '"a b=x" is not a valid taint'),
    ({"config": {"taints": [{"key": "a", "value": "x", "effect": "NEVER"}]}}, "Invalid value at"),
    ({"config": {"taints": [{"key": "a", "value": "x"}]}}, 'taint "a" has no effect'),
    ({"config": METADATA}, "if Workload Identity is enabled for the cluster"),
    ({"maxPodsConstraint": {"maxPodsPerNode": "1000"}}, "1000. It must be between 8 and 256."),
    ({"maxPodsConstraint": {"maxPodsPerNode": "7"}}, "7. It must be between 8 and 256."),
    (scaling(minNodeCount=5, maxNodeCount=1), "min_node_count 5 must not be greater than max_node_count 1"),
    (scaling(totalMinNodeCount=5, totalMaxNodeCount=1), "must not be greater"),
    (scaling(), "needs a max_node_count greater than zero"),
    (scaling(minNodeCount=-1, maxNodeCount=1), "no negative min_node_count"),
    (scaling(maxNodeCount=1, totalMaxNodeCount=2), "for each zone or in total, not both"),
    ({"upgradeSettings": {"maxSurge": -1}}, "maxSurge -1 is negative"),
    ({"networkConfig": {"podRange": "mars"}}, 'has no secondary range "mars"'),
    ({"version": "1.99.0-gke.1"}, 'Node version "1.99.0-gke.1" is unsupported.'),
]


@pytest.mark.parametrize(("changes", "words"), REFUSED)
def test_pool_with_a_value_that_gke_refuses_is_refused(world, changes, words):
    pools = world.cluster()
    status, word, text = world.refusal("POST", pools, cpu_pool(**changes))
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert words in text
    assert world.ask("GET", pools) == {"nodePools": []}


@pytest.mark.parametrize(
    "changes",
    [
        {"config": {"machineType": "n2-custom-4-8192"}},
        {"config": {"machineType": "n1-standard-4", **GPU}},
        {"config": {"imageType": "ubuntu_containerd"}},
        {"config": {"diskSizeGb": 10, "diskType": "pd-ssd"}},
        {"config": {"labels": {"tpukit.dev/pool": "cpu", "MultisliceGroup": "a_B.c", "empty": ""}}},
        {"config": {"taints": [{"key": "example.com/a", "effect": "NO_EXECUTE"}]}},
        {"config": {"workloadMetadataConfig": {"mode": "GCE_METADATA"}}},
        {"maxPodsConstraint": {"maxPodsPerNode": "256"}},
        scaling(minNodeCount=1, maxNodeCount=1),
        scaling(totalMinNodeCount=0, totalMaxNodeCount=3),
        {"autoscaling": {"enabled": False}},
        {"networkConfig": {"podRange": "pods"}},
        {"upgradeSettings": {"maxSurge": 0, "maxUnavailable": 1}},
    ],
)
def test_pool_with_a_value_that_gke_takes_is_made(world, changes):
    pools = world.cluster()
    world.ask("POST", pools, cpu_pool(**changes))
    assert world.ask("GET", f"{pools}/cpu")["status"] == "RUNNING"


def test_pool_without_a_name_is_refused(world):
    assert world.refusal("POST", world.cluster(), cpu_pool(name=""))[2] == "Node_pool.name must be specified."


def test_gpu_on_a_tpu_machine_is_refused(world):
    text = world.refusal("POST", world.cluster(), pool(config=GPU))[2]
    assert "nvidia-tesla-t4 is not supported by machine type ct4p-hightpu-4t" in text


def test_metadata_server_is_taken_where_the_cluster_has_workload_identity(world):
    pools = world.cluster()
    change = {"desiredWorkloadIdentityConfig": {"workloadPool": f"{PROJECT}.svc.id.goog"}}
    world.ask("PUT", pools.removesuffix("/nodePools"), {"update": change})
    world.ask("POST", pools, cpu_pool(config=METADATA))


def test_zero_and_nothing_are_filled_in_like_fields_that_are_not_there(world):
    pools = world.cluster()
    world.ask("POST", pools, cpu_pool(version="", locations=[], config={"diskSizeGb": 0, "imageType": ""}))
    made = world.ask("GET", f"{pools}/cpu")
    assert (made["config"]["diskSizeGb"], made["config"]["imageType"]) == (100, "COS_CONTAINERD")
    assert (made["version"], made["locations"]) == (NEWEST, ["us-central2-b"])


@pytest.mark.parametrize("asked", ["-", "latest", NEWEST, ".".join(NEWEST.split(".")[:2])])
def test_pool_of_a_named_version_has_the_version_itself(world, asked):
    pools = world.cluster()
    world.ask("POST", pools, cpu_pool(version=asked))
    assert world.ask("GET", f"{pools}/cpu")["version"] == NEWEST


def older_cluster(world: World) -> str:
    """Create a cluster of the minor version before the newest, with a pool, and return the path of its pools."""
    world.network()
    clusters = f"container/v1/projects/{PROJECT}/locations/us-central2/clusters"
    wanted = {"name": "one", "locations": ["us-central2-b"], "network": "net", "subnetwork": "subnet"}
    wanted |= {"initialClusterVersion": BEFORE, "nodePools": [cpu_pool()["nodePool"]]}
    world.ask("POST", clusters, {"cluster": wanted})
    return f"{clusters}/one/nodePools"


def test_nodes_are_never_newer_than_their_control_plane(world):
    pools = older_cluster(world)
    words = f'Node version "{NEWEST}" must not have a greater minor version than master version "{BEFORE}".'
    assert world.refusal("POST", pools, cpu_pool(name="new", version=NEWEST))[2] == words
    assert world.refusal("PUT", f"{pools}/cpu", {"nodeVersion": "latest"})[2] == words
    assert world.ask("GET", f"{pools}/cpu")["version"] == BEFORE


def test_nodes_follow_their_control_plane_to_its_version(world):
    pools = older_cluster(world)
    world.ask("PUT", pools.removesuffix("/nodePools"), {"update": {"desiredMasterVersion": "latest"}})
    world.ask("PUT", f"{pools}/cpu", {"nodeVersion": "-"})
    assert world.ask("GET", f"{pools}/cpu")["version"] == NEWEST
    world.ask("POST", pools, cpu_pool(name="new"))
    assert world.ask("GET", f"{pools}/new")["version"] == NEWEST


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, "At least one of ['node_version', 'image_type'"),
        ({"nodePoolId": "cpu", "nodeVersion": ""}, "At least one of ['node_version', 'image_type'"),
        ({"nodeVersion": "1.99.9-gke.1"}, 'Node version "1.99.9-gke.1" is unsupported.'),
        ({"nodeVersion": "9.99.9-gke.1"}, 'Version "9.99.9-gke.1" is invalid. It should have the form 1.X'),
        ({"machineType": "n2-standard-3"}, "GCE_NOT_FOUND"),
        ({"diskSizeGb": "1"}, "It must be at least 10"),
        ({"imageType": "WINDOWS_XP"}, "unexpected image_type"),
        ({"labels": {"labels": {"bad key!": "x"}}}, "is not a valid label key"),
        ({"taints": {"taints": [{"key": "a b", "effect": "NO_SCHEDULE"}]}}, "is not a valid taint"),
        ({"upgradeSettings": {"maxUnavailable": -1}}, "maxUnavailable -1 is negative"),
        ({"locations": ["us-central1-a"]}, "is not in region us-central2"),
    ],
)
def test_change_of_a_pool_that_gke_refuses_is_refused_and_changes_nothing(world, change, words):
    pools = world.cluster()
    world.ask("POST", pools, cpu_pool())
    before = world.ask("GET", f"{pools}/cpu")
    status, _, text = world.refusal("PUT", f"{pools}/cpu", change)
    assert (status, words in text) == (400, True)
    assert world.ask("GET", f"{pools}/cpu") == before


def test_autoscaling_with_bad_bounds_is_refused_of_a_pool_that_is_there_too(world):
    pools = world.cluster()
    world.ask("POST", pools, cpu_pool())
    text = world.refusal("POST", f"{pools}/cpu:setAutoscaling", scaling(minNodeCount=5, maxNodeCount=1))[2]
    assert "must not be greater" in text


def test_pool_to_be_scaled_is_named_where_there_are_several(world):
    pools = world.cluster()
    world.ask("POST", pools, cpu_pool())
    change = {"update": {"desiredNodePoolAutoscaling": {"enabled": True, "maxNodeCount": 3}}}
    world.ask("PUT", pools.removesuffix("/nodePools"), change)
    assert world.ask("GET", f"{pools}/cpu")["autoscaling"]["maxNodeCount"] == 3
    world.ask("POST", pools, cpu_pool(name="other"))
    text = world.refusal("PUT", pools.removesuffix("/nodePools"), change)[2]
    assert text.startswith("Node pool id must be specified if cluster has more than one node pool.")


@pytest.mark.parametrize(
    "name",
    [
        *("e2-medium", "e2-micro", "f1-micro", "g1-small"),
        *("e2-standard-32", "n1-standard-1", "n1-highmem-96", "n2-standard-128"),
        *("n2d-highcpu-224", "n4-standard-80", "n4a-standard-1", "c2-standard-60"),
        *("c2d-highmem-112", "c3-standard-176-lssd", "c3-highcpu-192-metal", "c3d-standard-360-lssd"),
        *("c4-highmem-288-lssd-metal", "c4d-standard-384", "t2d-standard-60", "t2a-standard-48"),
        *("m1-ultramem-160", "m2-hypermem-416", "m3-megamem-128", "m4-ultramem-224"),
        *("a2-highgpu-1g", "a2-megagpu-16g", "a3-highgpu-8g", "a3-ultragpu-8g"),
        *("a4-highgpu-8g", "g2-standard-96", "h3-standard-88", "z3-highmem-88"),
        *("custom-4-5120", "n2-custom-2-4096-ext", "e2-custom-medium-4096"),
    ],
)
def test_machine_type_of_google_exists(name):
    assert machine_types.exists(name)


@pytest.mark.parametrize(
    "name", ["n2-banana", "n2-standard-3", "n2-standard", "c2-highmem-4", "banana-standard-4", "", "n2-"]
)
def test_machine_type_that_google_has_not_does_not_exist(name):
    assert not machine_types.exists(name)


def test_every_family_that_zones_offer_has_machine_types():
    families = {family for row in CPU_FAMILIES.values() for family in (row or "").split()} - {"f1", "g1"}
    assert [family for family in families if not machine_types.exists(f"{family}-standard-4")] == []
