"""Facts from conversations recorded with Google's APIs: a new project's network, defaults, and refusals."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World, pool
from tpubox.google.wire.settings import number_of

COMPUTE = f"compute/v1/projects/{PROJECT}"
CLUSTERS = f"container/v1/projects/{PROJECT}/locations/us-central1-a/clusters"
NODES = f"tpu/v2/projects/{PROJECT}/locations/us-central1-a/nodes"
DEFAULT = f"projects/{PROJECT}/global/networks/default"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def cluster(world: World, **more: Any) -> Any:
    world.ask("POST", CLUSTERS, {"cluster": {"name": "one", "initialNodeCount": 1, **more}})
    world.pass_time(1000)
    return world.ask("GET", f"{CLUSTERS}/one")


def test_new_project_has_the_default_network_with_subnetworks_and_four_rules(world):
    network = world.ask("GET", f"{COMPUTE}/global/networks/default")
    assert network["autoCreateSubnetworks"]
    assert (
        f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/regions/us-east5/subnetworks/default"
        in (network["subnetworks"])
    )
    rules = world.ask("GET", f"{COMPUTE}/global/firewalls")["items"]
    assert [rule["name"] for rule in rules] == [f"default-allow-{word}" for word in ("icmp", "internal", "rdp", "ssh")]
    assert {rule["priority"] for rule in rules} == {65534}


def test_default_network_is_no_resource_of_the_user_and_can_be_deleted(world):
    assert world.cloud.inventory() == []
    for rule in world.ask("GET", f"{COMPUTE}/global/firewalls")["items"]:
        world.ask("DELETE", f"{COMPUTE}/global/firewalls/{rule['name']}")
    world.ask("DELETE", f"{COMPUTE}/global/networks/default")
    assert "items" not in world.ask("GET", f"{COMPUTE}/regions/us-east5/subnetworks") or not world.ask(
        "GET", f"{COMPUTE}/regions/us-east5/subnetworks"
    ).get("items")


def test_default_network_that_was_deleted_stays_deleted_after_a_restart(tmp_path):
    with World(tmp_path) as world:
        for rule in world.ask("GET", f"{COMPUTE}/global/firewalls")["items"]:
            world.ask("DELETE", f"{COMPUTE}/global/firewalls/{rule['name']}")
        world.ask("DELETE", f"{COMPUTE}/global/networks/default")
    with World(tmp_path) as world:
        assert world.refusal("GET", f"{COMPUTE}/global/networks/default")[0] == 404


def test_network_and_subnetwork_have_what_google_fills_in(world):
    world.network()
    network = world.ask("GET", f"{COMPUTE}/global/networks/net")
    assert network["routingConfig"] == {"routingMode": "REGIONAL", "bgpBestPathSelectionMode": "LEGACY"}
    assert network["networkFirewallPolicyEnforcementOrder"] == "AFTER_CLASSIC_FIREWALL"
    assert [link.rpartition("/")[2] for link in network["subnetworks"]] == ["subnet"]
    assert network["selfLinkWithId"].endswith(f"/global/networks/{network['id']}")
    subnet = world.ask("GET", f"{COMPUTE}/regions/us-central2/subnetworks/subnet")
    assert subnet["privateIpv6GoogleAccess"] == "DISABLE_GOOGLE_ACCESS"


def test_operation_of_compute_engine_names_its_target_by_number_and_who_asked(world):
    operation = world.ask("POST", f"{COMPUTE}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
    assert operation["targetId"] == world.ask("GET", f"{COMPUTE}/global/networks/net")["id"]
    assert operation["user"]


def test_cluster_without_a_word_is_on_a_channel_and_its_pools_are_repaired_and_upgraded(world):
    found = cluster(world)
    assert found["releaseChannel"] == {"channel": "REGULAR"}
    [default] = found["nodePools"]
    assert default["management"] == {"autoRepair": True, "autoUpgrade": True}
    assert default["upgradeSettings"] == {"maxSurge": 1, "strategy": "SURGE"}
    assert (default["podIpv4CidrSize"], default["maxPodsConstraint"]) == (24, {"maxPodsPerNode": "110"})


def test_pool_on_a_channel_cannot_turn_upgrades_off(world):
    cluster(world)
    body = {"nodePool": {"name": "cpu", "initialNodeCount": 1, "management": {"autoRepair": True}}}
    status, word, message = world.refusal("POST", f"{CLUSTERS}/one/nodePools", body)
    assert (status, word) == (400, "INVALID_ARGUMENT")
    assert "REGULAR" in message


def test_pool_without_scopes_reads_buckets_and_does_not_write_to_them(world):
    [default] = cluster(world)["nodePools"]
    scopes = [scope.rpartition("/")[2] for scope in default["config"]["oauthScopes"]]
    assert "devstorage.read_only" in scopes
    assert "cloud-platform" not in scopes


@pytest.mark.parametrize(("pods", "size"), [(32, 26), (64, 25), (110, 24), (256, 23)])
def test_pool_says_how_long_the_mask_of_a_nodes_addresses_is(world, pods, size):
    found = cluster(world, defaultMaxPodsConstraint={"maxPodsPerNode": str(pods)})
    assert found["nodePools"][0]["podIpv4CidrSize"] == size


def test_cluster_names_its_network_in_short_and_below_its_network_config_in_full(world):
    found = cluster(world)
    assert (found["network"], found["subnetwork"]) == ("default", "default")
    assert found["networkConfig"]["network"] == DEFAULT


def test_links_and_refusals_of_a_zonal_cluster_say_zones(world):
    found = cluster(world)
    assert f"projects/{PROJECT}/zones/us-central1-a/clusters/one" in found["selfLink"]
    assert world.refusal("GET", f"{CLUSTERS}/two")[2] == (
        f"Not found: projects/{PROJECT}/zones/us-central1-a/clusters/two."
    )
    assert world.refusal("GET", f"{CLUSTERS}/one/nodePools/none")[2] == 'Not found: node pool "none" not found.'


def test_operation_of_gke_names_its_target_by_the_projects_number(world):
    started = world.ask("POST", CLUSTERS, {"cluster": {"name": "one", "initialNodeCount": 1}})
    number = number_of(PROJECT)
    assert started["targetLink"].endswith(f"/v1/projects/{number}/zones/us-central1-a/clusters/one")
    assert started["zone"] == "us-central1-a"


def test_regional_cluster_is_in_no_ai_zone_unless_it_names_one(world):
    clusters = f"container/v1/projects/{PROJECT}/locations/us-central1/clusters"
    world.ask("POST", clusters, {"cluster": {"name": "one", "initialNodeCount": 1}})
    world.pass_time(1000)
    assert world.ask("GET", f"{clusters}/one")["locations"] == ["us-central1-a", "us-central1-b", "us-central1-c"]


def test_tpu_vm_on_the_default_network_is_made_with_full_names_and_googles_scopes(world):
    body = {
        "acceleratorType": "v5p-8",
        "runtimeVersion": "tpu-vm-cos-stable",
        "networkConfig": {"network": "default", "enableExternalIps": True},
    }
    operation = world.ask("POST", NODES, body, nodeId="one")
    assert operation["metadata"]["@type"] == "type.googleapis.com/google.cloud.common.OperationMetadata"
    assert operation["metadata"]["verb"] == "create"
    world.pass_time(1000)
    made = world.ask("GET", f"{NODES}/one")
    assert made["networkConfig"] == {
        "enableExternalIps": True,
        "network": DEFAULT,
        "subnetwork": f"projects/{PROJECT}/regions/us-central1/subnetworks/default",
    }
    assert [scope.rpartition("/")[2] for scope in made["serviceAccount"]["scope"]] == [
        *("devstorage.read_write", "logging.write", "service.management", "servicecontrol", "cloud-platform"),
        "pubsub",
    ]


def test_tpu_vm_on_a_network_that_was_deleted_fails(tmp_path):
    with World(tmp_path, seconds={"CREATE_NODE": 1.0}, default_network=False) as world:
        body = {"acceleratorType": "v5p-8", "runtimeVersion": "v2-alpha-tpuv5"}
        started = world.ask("POST", NODES, body, nodeId="one")
        world.pass_time(10)
        ended = world.ask("GET", f"tpu/v2/{started['name']}")
        assert f"'{DEFAULT}' was not found" in ended["error"]["message"]


def test_bucket_with_uniform_access_says_so_twice_and_until_when_it_can_be_taken_back(world):
    access = {"uniformBucketLevelAccess": {"enabled": True}}
    made = world.ask("POST", "storage/v1/b", {"name": "one", "iamConfiguration": access}, project=PROJECT)
    found = made["iamConfiguration"]
    assert found["bucketPolicyOnly"] == found["uniformBucketLevelAccess"]
    assert found["uniformBucketLevelAccess"]["lockedTime"] > made["timeCreated"]


def test_unknown_service_account_is_refused_in_googles_words(world):
    assert world.refusal("GET", f"iam/v1/projects/{PROJECT}/serviceAccounts/none")[2] == "Unknown service account"


def test_instance_group_of_a_pool_says_what_its_machines_do(world):
    [default] = cluster(world)["nodePools"]
    [link] = default["instanceGroupUrls"]
    found = world.ask("GET", link.removeprefix("https://www.googleapis.com/"))
    assert found["currentActions"]["none"] == found["targetSize"] == 1
    assert found["instanceLifecyclePolicy"]["defaultActionOnFailure"] == "REPAIR"


def test_tpu_pool_asked_for_by_hand_has_googles_defaults(world):
    pools = world.cluster()
    world.ask("POST", pools, pool())
    world.pass_time(1000)
    found = world.ask("GET", f"{pools}/tpu-0")
    assert found["management"] == {"autoRepair": True, "autoUpgrade": True}
    assert found["config"]["bootDisk"] == {"diskType": "pd-balanced", "sizeGb": "100"}
    assert found["config"]["resourceLabels"] == {"goog-gke-node-pool-provisioning-model": "on-demand"}
