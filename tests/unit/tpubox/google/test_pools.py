"""Node pools of the emulator: accepted and refused requests, and the life of accepted ones."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.google_world import PROJECT, World, pool
from tpubox.box import binaries
from tpubox.google.compute import stock_and_quota
from tpubox.google.gke import pool_checks, pool_nodes
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.settings import Hooks, Pool
from tpukit.catalogue import Slice, slices

OFFERED = [shape for shape in slices() if shape.placement is not None]


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., World]]:
    """Yield a function that creates worlds with their own settings or hooks."""
    with ExitStack() as worlds:
        yield lambda *words, **settings: worlds.enter_context(World(tmp_path, *words, **settings))


def described(shape: Slice, nodes: int) -> dict[str, Any]:
    """Return a pool request for this shape, with the fields that GKE fills in."""
    placement = {
        "none": {},
        "compact": {"type": "COMPACT", "tpuTopology": shape.topology},
        "policy": {"policyName": f"policy-{shape.topology}"},
    }[str(shape.placement)]
    hyperdisk = shape.generation in ("v6e", "tpu7x")
    config = {"machineType": shape.machine_type, "diskType": "hyperdisk-balanced" if hyperdisk else "pd-balanced"}
    made = {"initialNodeCount": nodes, "locations": [shape.zones[0]], "placementPolicy": placement, "config": config}
    return {**made, "management": {"autoUpgrade": True, "autoRepair": True}}


@pytest.fixture(scope="module")
def checker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    with World(tmp_path_factory.mktemp("shapes")) as made:
        for shape in OFFERED:
            if shape.placement == "policy":
                region = shape.zones[0].rpartition("-")[0]
                full = f"projects/{PROJECT}/regions/{region}/resourcePolicies/policy-{shape.topology}"
                policy = {"type": "HIGH_THROUGHPUT", "acceleratorTopology": shape.topology}
                made.cloud.state.put("resourcePolicy", full, {"workloadPolicy": policy})
        yield made


def cluster_of(shape: Slice) -> dict[str, Any]:
    return {"_project": PROJECT, "_region": shape.zones[0].rpartition("-")[0]}


def test_every_shape_of_the_catalogue_is_taken(checker):
    for shape in OFFERED:
        wish = pool_checks.check(checker.cloud, cluster_of(shape), described(shape, shape.hosts))
        assert wish.slice == shape
        assert wish.holding.chips == shape.chips
        assert wish.several_hosts == (shape.hosts > 1)


@given(shape=st.sampled_from([shape for shape in OFFERED if shape.hosts > 1]), nodes=st.integers(0, 4096))
def test_slice_of_several_hosts_with_any_other_number_of_nodes_is_refused(checker, shape, nodes):
    if nodes == shape.hosts:
        return
    with pytest.raises(Refused, match="does not match TPU topology"):
        pool_checks.check(checker.cloud, cluster_of(shape), described(shape, nodes))


@pytest.mark.parametrize("shape", [shape for shape in OFFERED if shape.hosts == 1], ids=lambda shape: shape.name)
def test_slice_of_one_host_with_a_topology_is_refused(checker, shape):
    asked = described(shape, 1)
    asked["placementPolicy"] = {"type": "COMPACT", "tpuTopology": shape.topology}
    several = {each.topology for each in OFFERED if each.machine_type == shape.machine_type and each.hosts > 1}
    if shape.topology in several:
        pytest.fail("no machine type has one topology both ways")
    with pytest.raises(Refused, match=r"single-host|workload policy"):
        pool_checks.check(checker.cloud, cluster_of(shape), asked)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"initialNodeCount": 3}, "Number of nodes 3 does not match TPU topology 2x2x4: 4 nodes"),
        ({"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x3"}}, "TPU topology 2x2x3 is not supported"),
        ({"placementPolicy": {"type": "COMPACT", "tpuTopology": "2x2x1"}}, "single-host TPU slices"),
        ({"locations": ["us-central2-z"]}, 'Location "us-central2-z" does not exist'),
        ({"locations": ["us-central1-a"]}, "not in region us-central2"),
        ({"config": {"machineType": "ct4p-hightpu-8t"}}, "does not exist in zone"),
        ({"config": {"machineType": "n2-standard-8"}}, "has no TPUs"),
        ({"config": {"diskType": "hyperdisk-balanced"}}, "hyperdisk-balanced is not supported"),
        ({"config": {"spot": True, "flexStart": True}}, "exclude each other"),
        ({"config": {"flexStart": True}}, "must have autoscaling and start with 0 nodes"),
        ({"config": {"reservationAffinity": {"consumeReservationType": "SPECIFIC_RESERVATION"}}}, "needs the key"),
        (
            {
                "config": {
                    "reservationAffinity": {
                        "consumeReservationType": "SPECIFIC_RESERVATION",
                        "key": "compute.googleapis.com/reservation-name",
                        "values": ["mine/blocks/one"],
                    }
                }
            },
            "Invalid reservation name",
        ),
        (
            {"initialNodeCount": 0, "autoscaling": {"enabled": True, "maxNodeCount": 1}},
            "from 0 to its 4 nodes, not to 1",
        ),
        ({"upgradeSettings": {"strategy": "BLUE_GREEN"}}, "surge upgrades only"),
        ({"name": "Large"}, "node_pool.name"),
        ({"name": "a" * 41}, "node_pool.name"),
    ],
)
def test_pool_that_gke_refuses_is_refused_and_leaves_nothing(world, changes, words):
    pools = world.cluster()
    status, word, text = world.refusal("POST", pools, pool(**changes))
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert words in text
    assert world.ask("GET", pools) == {"nodePools": []}


@pytest.mark.parametrize(
    ("disk", "good"), [("pd-standard", False), ("pd-balanced", False), ("hyperdisk-balanced", True)]
)
def test_machines_that_boot_from_hyperdisk_alone_are_refused_with_other_disks(world, disk, good):
    pools = world.cluster("us-east5", "us-east5-a")
    config = {"machineType": "n4-standard-4", "diskType": disk}
    asked = pool("cpu", initialNodeCount=1, placementPolicy=None, config=config)
    if good:
        world.ask("POST", pools, asked)
        return
    status, _, text = world.refusal("POST", pools, asked)
    assert (status, text) == (400, f"[{disk}, n4-standard-4] features are not compatible for creating instance.")


def test_pool_is_a_group_of_machines_in_compute_engine_with_a_manager(world):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    world.pass_time(1000)
    zone = f"compute/v1/projects/{PROJECT}/zones/us-central2-b"
    (group,) = world.ask("GET", f"{zone}/instanceGroups")["items"]
    (manager,) = world.ask("GET", f"{zone}/instanceGroupManagers")["items"]
    assert (group["size"], manager["targetSize"]) == (4, 4)
    assert world.ask("GET", f"{zone}/instanceGroups/{group['name']}") == group
    assert world.ask("GET", f"{zone}/instanceGroupManagers/{manager['name']}") == manager
    listed = world.ask("POST", f"{zone}/instanceGroupManagers/{manager['name']}/listManagedInstances")
    assert len(listed["managedInstances"]) == 4


def test_group_with_machines_that_do_not_run_is_not_stable_and_makes_them_again(make):
    down: dict[str, str] = {}
    world = make(Hooks(not_running=lambda full: down if full.endswith("/nodePools/tpu-0") else {}))
    pools = world.cluster()
    world.ask("POST", pools, pool())
    world.pass_time(1000)
    managers = f"compute/v1/projects/{PROJECT}/zones/us-central2-b/instanceGroupManagers"
    (manager,) = world.ask("GET", managers)["items"]

    def machines() -> list[tuple[str, str]]:
        listed = world.ask("POST", f"{managers}/{manager['name']}/listManagedInstances")["managedInstances"]
        return [(one["instanceStatus"], one["currentAction"]) for one in listed]

    assert manager["status"]["isStable"] is True
    assert machines() == [("RUNNING", "NONE")] * 4
    base = manager["name"].removesuffix("-grp")
    down |= {f"{base}-0001": "TERMINATED", f"{base}-0002": "STOPPING"}
    assert machines() == [("RUNNING", "NONE"), ("TERMINATED", "RECREATING"), ("STOPPING", "NONE"), ("RUNNING", "NONE")]
    assert world.ask("GET", f"{managers}/{manager['name']}")["status"]["isStable"] is False
    down.clear()
    assert world.ask("GET", f"{managers}/{manager['name']}")["status"]["isStable"] is True


def test_newest_generation_needs_its_policy(world):
    pools = world.cluster("us-central1", "us-central1-c")
    asked = {"config": {"machineType": "tpu7x-standard-4t", "diskType": "hyperdisk-balanced"}, "initialNodeCount": 2}
    compact = {"type": "COMPACT", "tpuTopology": "2x2x2"}
    assert "use workload policy instead" in world.refusal("POST", pools, pool(placementPolicy=compact, **asked))[2]
    named = {"policyName": "wired"}
    assert "was not found" in world.refusal("POST", pools, pool(placementPolicy=named, **asked))[2]
    policies = f"compute/v1/projects/{PROJECT}/regions/us-central1/resourcePolicies"
    policy = {"name": "wired", "workloadPolicy": {"type": "HIGH_THROUGHPUT", "acceleratorTopology": "2x2x2"}}
    world.ask("POST", policies, policy)
    world.ask("POST", pools, pool(placementPolicy=named, **asked))
    assert "is already being used by" in world.refusal("DELETE", f"{policies}/wired")[2]


@pytest.mark.parametrize(
    ("zone", "machine_type"),
    [
        ("us-east5-a", "n1-standard-4"),
        ("us-south1-a", "n1-standard-4"),
        ("southamerica-west1-a", "n1-standard-4"),
        ("us-central2-b", "e2-standard-4"),
        ("us-south1-c", "c4-standard-4"),
    ],
)
def test_cpu_machines_that_a_zone_does_not_offer_are_refused_and_n2_is_taken(world, zone, machine_type):
    pools = world.cluster(zone.rpartition("-")[0], zone)
    status, word, text = world.refusal("POST", pools, _cpu_pool(machine_type))
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert text == f'Invalid machine type "{machine_type}" in zone "{zone}": GCE_NOT_FOUND.'
    world.ask("POST", pools, _cpu_pool("n2-standard-4"))


def test_cpu_machines_in_an_ai_zone_are_refused_and_taken_in_its_parent(world):
    pools = world.cluster("us-central1", "us-central1-a")
    _, _, text = world.refusal("POST", pools, _cpu_pool("n2-standard-4", locations=["us-central1-ai1a"]))
    assert "us-central1-ai1a" in text
    slices = pool("tpu-0", config={"machineType": "ct6e-standard-1t", "diskType": "hyperdisk-balanced"})
    slices["nodePool"] |= {"locations": ["us-central1-ai1a"], "placementPolicy": {}, "initialNodeCount": 1}
    world.ask("POST", pools, slices)
    world.pass_time(1000)
    world.ask("POST", pools, _cpu_pool("n2-standard-4"))


def test_cluster_in_a_zone_without_the_machines_of_its_first_node_is_refused(world):
    with pytest.raises(AssertionError, match="Invalid machine type"):
        world.cluster("us-south1", "us-south1-ai1b")


def _cpu_pool(machine_type, **changes):
    return {"nodePool": {"name": "cpu", "initialNodeCount": 1, "config": {"machineType": machine_type}, **changes}}


def test_pool_twice_is_a_conflict(world):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    assert world.refusal("POST", pools, pool())[:2] == (409, "ALREADY_EXISTS")


def test_pool_is_provisioning_until_its_operation_ends(make):
    world = make(seconds={"CREATE_NODE_POOL": 30.0})
    pools = world.cluster()
    operation = world.ask("POST", pools, pool())
    path = f"{pools.partition('/clusters')[0]}/operations/{operation['name']}"
    assert world.ask("GET", path)["status"] == "RUNNING"
    assert world.ask("GET", f"{pools}/tpu-0")["status"] == "PROVISIONING"
    world.pass_time(29.9)
    assert world.ask("GET", path)["status"] == "RUNNING"
    world.pass_time(0.1)
    assert world.ask("GET", path)["status"] == "DONE"
    assert world.ask("GET", f"{pools}/tpu-0")["status"] == "RUNNING"


def test_topology_without_a_placement_type_is_taken_as_gcloud_sends_it(world):
    """`gcloud container node-pools create --tpu-topology` sends no type."""
    pools = world.cluster()
    world.ask("POST", pools, pool(placementPolicy={"tpuTopology": "2x2x4"}))
    assert world.ask("GET", f"{pools}/tpu-0")["status"] == "RUNNING"


def test_pods_range_that_is_too_small_leaves_the_pool_in_error(world):
    pools = world.cluster(pods="10.64.0.0/24")
    operation = world.ask("POST", pools, pool())
    assert "[IP_SPACE_EXHAUSTED]" in operation["statusMessage"]
    world.ask(
        "POST", pools, {"nodePool": {"name": "x", "initialNodeCount": 0, "config": {"machineType": "n2-standard-4"}}}
    )
    world.ask("DELETE", f"{pools}/tpu-0")
    assert "statusMessage" not in world.ask("POST", pools, pool(maxPodsConstraint={"maxPodsPerNode": "16"}))


def test_disks_over_their_quota_are_refused_in_gkes_words_and_listed_with_their_usage(world):
    pools = world.cluster()
    stock_and_quota.limit_disks(world.cloud, "us-central2", "SSD_TOTAL_GB", 500)
    world.ask("POST", pools, pool("a"))
    world.pass_time(1000)
    quotas = world.ask("GET", f"compute/v1/projects/{PROJECT}/regions/us-central2")["quotas"]
    assert {"metric": "SSD_TOTAL_GB", "limit": 500, "usage": 400} in quotas
    status, _, text = world.refusal("POST", pools, pool("b"))
    assert status == 403
    assert text.startswith(
        'Insufficient regional quota to satisfy request: resource "SSD_TOTAL_GB": request requires '
        "'400.0' and is short '300.0'. project has a quota of '500.0' with '100.0' available."
    )


def more_pods(world: World, pools: str, *names: str, key: str = "additionalPodRangesConfig") -> tuple[int, Any]:
    answer = world.send("PUT", pools.rpartition("/")[0], {"update": {key: {"podRangeNames": names}}})
    world.pass_time(1000)
    return answer


def test_additional_range_takes_the_next_pool_and_cannot_be_removed_while_it_does(world):
    pools = world.cluster(pods="10.64.0.0/22")  # eight nodes of 64 pods
    subnet = "compute/v1/projects/tpu-project/regions/us-central2/subnetworks/subnet"
    found = world.ask("GET", subnet)
    more = [*found["secondaryIpRanges"], {"rangeName": "more", "ipCidrRange": "10.80.0.0/20"}]
    world.ask("PATCH", subnet, {"secondaryIpRanges": more, "fingerprint": found["fingerprint"]})
    world.pass_time(1000)
    assert more_pods(world, pools, "other")[0] == 400
    constraint = {"maxPodsConstraint": {"maxPodsPerNode": "64"}}
    for name in ("a", "b", "c"):
        world.ask("POST", pools, pool(name, **constraint))
        world.pass_time(1000)
        if name == "b":
            assert more_pods(world, pools, "more")[0] == 200
    placed = {one["name"]: one["networkConfig"]["podRange"] for one in world.ask("GET", pools)["nodePools"]}
    assert placed == {"a": "pods", "b": "pods", "c": "more"}
    assert {one["status"] for one in world.ask("GET", pools)["nodePools"]} == {"RUNNING"}
    assert more_pods(world, pools, "more", key="removedAdditionalPodRangesConfig")[0] == 400
    world.ask("DELETE", f"{pools}/c")
    world.pass_time(1000)
    assert more_pods(world, pools, "more", key="removedAdditionalPodRangesConfig")[0] == 200
    assert "additionalPodRangesConfig" not in world.ask("GET", pools.rpartition("/")[0])["ipAllocationPolicy"]


def test_operations_of_one_cluster_are_limited(make):
    world = make(seconds={"CREATE_NODE_POOL": 10.0, "DELETE_CLUSTER": 10.0}, cluster_operations=2)
    pools = world.cluster()
    world.ask("POST", pools, pool("a"))
    world.ask("POST", pools, pool("b"))
    status, _, text = world.refusal("POST", pools, pool("c"))
    assert status == 429
    assert text == 'Too many operations: cluster "one" hits the concurrent operations quota 2, please try again later.'
    status, word, text = world.refusal("DELETE", f"{pools}/a")
    assert (status, word) == (400, "FAILED_PRECONDITION")
    assert text.endswith(
        "is currently creating a node pool for cluster one. Please wait and try again once it is done."
    )
    cluster = pools.removesuffix("/nodePools")
    assert world.refusal("DELETE", cluster)[1] == "FAILED_PRECONDITION"
    world.pass_time(10)
    world.ask("DELETE", cluster)
    assert "incompatible operation" in world.refusal("POST", pools, pool("c"))[2]


def test_slice_of_several_hosts_is_not_changed_in_place(world):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    assert "cannot be resized" in world.refusal("POST", f"{pools}/tpu-0:setSize", {"nodeCount": 8})[2]
    assert "cannot be changed" in world.refusal("PUT", f"{pools}/tpu-0", {"machineType": "ct5p-hightpu-4t"})[2]
    world.ask("PUT", f"{pools}/tpu-0", {"labels": {"labels": {"a": "b"}}})
    assert world.ask("GET", f"{pools}/tpu-0")["config"]["labels"] == {"a": "b"}
    assert world.refusal("PUT", f"{pools}/tpu-0", {"confidentialNodes": {"enabled": True}})[0] == 501


def test_channel_insists_on_upgrades(world):
    pools = world.cluster()
    cluster = pools.removesuffix("/nodePools")
    world.ask("PUT", cluster, {"update": {"desiredReleaseChannel": {"channel": "REGULAR"}}})
    off, on = {"autoUpgrade": False}, {"autoUpgrade": True}
    assert "Auto_upgrade must be true" in world.refusal("POST", pools, pool(management=off))[2]
    world.ask("POST", pools, pool(management=on))


def test_cluster_is_of_the_version_of_the_boxs_api_server_and_two_minor_versions_before_are_offered(world):
    pinned = binaries.versions()["kubernetes"].removeprefix("v")
    cluster = world.cluster().removesuffix("/nodePools")
    newest = world.ask("GET", cluster)["currentMasterVersion"]
    assert newest.partition("-gke.")[0] == pinned
    config = world.ask("GET", f"container/v1/projects/{PROJECT}/locations/us-central2/serverConfig")
    assert config["defaultClusterVersion"] == newest
    assert newest in config["validMasterVersions"]
    minor = int(pinned.split(".")[1])
    assert [int(one.split(".")[1]) for one in config["validMasterVersions"]] == [minor, minor - 1, minor - 2]


def test_nodes_come_and_go_with_their_pool_before_its_operation_is_done(make):
    seen: list[tuple[str, Pool]] = []
    world = make(Hooks(lambda one: seen.append(("came", one)), lambda one: seen.append(("went", one))))
    pools = world.cluster()
    seen.clear()
    world.ask("POST", pools, pool(config={"spot": True, "labels": {"team": "research"}}))
    ((what, came),) = seen
    assert what == "came"
    assert list(came.nodes.values()) == ["us-central2-b"] * 4
    assert len(set(came.nodes)) == 4
    assert (came.slice.name, came.capacity, came.max_pods) == ("v4-32", "spot", 110)
    assert came.labels == {
        "team": "research",
        "cloud.google.com/gke-nodepool": "tpu-0",
        "cloud.google.com/machine-family": "ct4p",
        "cloud.google.com/gke-provisioning": "spot",
        "cloud.google.com/gke-spot": "true",
        "cloud.google.com/gke-tpu-accelerator": "tpu-v4-podslice",
        "cloud.google.com/gke-tpu-topology": "2x2x4",
        "cloud.google.com/gke-accelerator-count": "4",
        "node.kubernetes.io/instance-type": "ct4p-hightpu-4t",
    }
    assert came.taints == ({"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"},)
    world.ask("DELETE", pools.removesuffix("/nodePools"))
    assert [(what, one.name) for what, one in seen] == [("came", "tpu-0"), ("went", "tpu-0")]


@pytest.mark.parametrize("said", [True, False, None])
def test_pool_that_is_deleted_keeps_budgets_only_where_its_drain_config_says_so(make, said):
    went: list[Pool] = []
    world = make(Hooks(on_pool_deleted=went.append))
    pools = world.cluster()
    drain = {} if said is None else {"nodeDrainConfig": {"respectPdbDuringNodePoolDeletion": said}}
    world.ask("POST", pools, pool(**drain))
    world.ask("DELETE", f"{pools}/tpu-0")
    assert [one.keeps_budgets for one in went if one.name == "tpu-0"] == [bool(said)]


def test_labels_and_taints_of_a_changed_pool_reach_its_nodes(make):
    seen: list[Pool] = []
    world = make(Hooks(seen.append))
    pools = world.cluster()
    world.ask("POST", pools, pool(config={"spot": True, "labels": {"team": "research"}}))
    seen.clear()
    taints = [{"key": "cloud.google.com/gke-spot", "value": "true", "effect": "NO_SCHEDULE"}]
    change = {"labels": {"labels": {"team": "speech"}}, "taints": {"taints": taints}}
    world.ask("PUT", f"{pools}/tpu-0", change)
    (changed,) = seen
    assert changed.labels["team"] == "speech"
    assert [taint["key"] for taint in changed.taints] == ["cloud.google.com/gke-spot", "google.com/tpu"]
    assert len(changed.nodes) == 4
    empty = pool("scaled", initialNodeCount=0, autoscaling={"enabled": True, "maxNodeCount": 4})
    world.ask("POST", pools, empty)
    seen.clear()
    world.ask("PUT", f"{pools}/scaled", change)
    assert not seen, "it has no nodes"


@pytest.mark.parametrize("seconds", [0, 30, 120])
def test_shutdown_of_spot_machines_may_be_delayed_and_of_no_others(world, seconds):
    pools = world.cluster()
    config = {"kubeletConfig": {"shutdownGracePeriodSeconds": seconds}}
    world.ask("POST", pools, pool(config={"spot": True, **config}))
    assert "shutdown_grace_period_seconds" in world.refusal("POST", pools, pool("other", config=config))[2]
    wrong = {"spot": True, "kubeletConfig": {"shutdownGracePeriodSeconds": 60}}
    assert "60 is not one of 0, 30 and 120" in world.refusal("POST", pools, pool("other", config=wrong))[2]


def test_hook_that_raises_leaves_the_pool_in_error(make):
    def refuse(one: Pool) -> None:
        raise RuntimeError("no such API server")

    world = make()
    pools = world.cluster()
    world.cloud.hooks = Hooks(on_pool_created=refuse)
    assert "no such API server" in world.ask("POST", pools, pool())["statusMessage"]
    assert world.ask("GET", f"{pools}/tpu-0")["status"] == "ERROR"


def test_cluster_goes_with_its_default_pool_and_network_stays_while_it_is_used(world):
    pools = world.cluster()
    assert (
        "is already being used by" in world.refusal("DELETE", f"compute/v1/projects/{PROJECT}/global/networks/net")[2]
    )
    world.ask("POST", pools, pool())
    world.ask("DELETE", pools.removesuffix("/nodePools"))
    world.ask("DELETE", f"compute/v1/projects/{PROJECT}/regions/us-central2/subnetworks/subnet")
    world.ask("DELETE", f"compute/v1/projects/{PROJECT}/global/networks/net")
    assert world.cloud.inventory() == []


def test_pool_of_a_block_takes_from_its_reservation_and_its_nodes_name_both(world):
    stock_and_quota.reserve(world.cloud, "mine", "us-central2-b", "v4", 16)
    pools = world.cluster()
    affinity = {
        "consumeReservationType": "SPECIFIC_RESERVATION",
        "key": "compute.googleapis.com/reservation-name",
        "values": ["mine/reservationBlocks/block-1/reservationSubBlocks/sub-2"],
    }
    world.ask("POST", pools, pool(config={"reservationAffinity": affinity}))
    world.pass_time(1000)
    (full,) = [name for name, doc in world.cloud.state.all("pool").items() if doc["name"] == "tpu-0"]
    labels = pool_nodes.described(world.cloud, full).labels
    named = {name.rpartition("/")[2]: value for name, value in labels.items() if "reservation" in name}
    assert named == {
        "reservation-name": "mine",
        "reservation-blocks": "block-1",
        "reservation-subblocks": "sub-2",
    }
    failed = world.ask("POST", pools, pool("tpu-1", config={"reservationAffinity": affinity}))
    assert "The reservation mine does not have enough resources" in failed["statusMessage"]
