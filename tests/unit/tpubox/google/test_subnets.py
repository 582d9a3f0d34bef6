"""Networks and subnetworks of the emulator: automatic ones, and permitted changes."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.regions import REGIONS

COMPUTE = f"compute/v1/projects/{PROJECT}"
NETWORKS = f"{COMPUTE}/global/networks"
SUBNETS = f"{COMPUTE}/regions/us-central2/subnetworks"
NETWORK = f"projects/{PROJECT}/global/networks/net"
PODS = {"rangeName": "pods", "ipCidrRange": "10.64.0.0/14"}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path) as made:
        yield made


def subnet(**fields: Any) -> dict[str, Any]:
    return {"name": "new", "network": NETWORK, "ipCidrRange": "10.101.0.0/24", **fields}


def read(world: World, name: str = "subnet") -> Any:
    return world.ask("GET", f"{SUBNETS}/{name}")


def patch(world: World, **fields: Any) -> dict[str, Any]:
    """Return the body of a change from a client that has just read the subnetwork."""
    return {"fingerprint": read(world)["fingerprint"], **fields}


@pytest.mark.parametrize(
    ("said", "words"),
    [
        ({"ipCidrRange": "10.101.0.0/30"}, "'resource.ipCidrRange': '10.101.0.0/30'"),
        ({"ipCidrRange": "0.0.0.0/0"}, "'resource.ipCidrRange'"),
        ({"ipCidrRange": "127.0.0.0/20"}, "127.0.0.0/20 is a prohibited range"),
        ({"ipCidrRange": "169.254.1.0/24"}, "169.254.1.0/24 is a prohibited range"),
        ({"ipCidrRange": "224.0.0.0/20"}, "224.0.0.0/20 is a prohibited range"),
        ({"ipCidrRange": "fd00::/64"}, "Must be a valid IPV4 CIDR address range"),
        ({"ipCidrRange": "banana"}, "Must be a valid IPV4 CIDR address range"),
        ({"ipCidrRange": "10.101.0.1/24"}, "Must be a valid IPV4 CIDR address range"),
        (
            {"secondaryIpRanges": [{**PODS, "ipCidrRange": "10.9.0.0/30"}]},
            "'resource.secondaryIpRanges[0].ipCidrRange'",
        ),
        ({"secondaryIpRanges": [{**PODS, "rangeName": "Bad_Name"}]}, "'resource.secondaryIpRanges[0].rangeName'"),
        (
            {"secondaryIpRanges": [{"ipCidrRange": "10.9.0.0/24"}]},
            "Required field 'resource.secondaryIpRanges[0].rangeName' not specified",
        ),
        (
            {"secondaryIpRanges": [{**PODS, "ipCidrRange": "10.9.0.0/24"}, {**PODS, "ipCidrRange": "10.8.0.0/24"}]},
            "'resource.secondaryIpRanges[1].rangeName': 'pods'. Duplicate",
        ),
        ({"network": None}, "Required field 'resource.network' not specified"),
    ],
)
def test_subnet_that_google_would_not_make_is_refused(world, said, words):
    world.network()
    status, _, text = world.refusal("POST", SUBNETS, subnet(**said))
    assert status == 400
    assert words in text
    assert world.refusal("GET", f"{SUBNETS}/new")[0] == 404


def test_subnet_of_the_smallest_range_is_made_and_shows_what_google_chose(world):
    world.network()
    world.ask("POST", SUBNETS, subnet(ipCidrRange="10.101.0.8/29"))
    told = read(world, "new")
    assert told["gatewayAddress"] == "10.101.0.9"
    assert (told["privateIpGoogleAccess"], told["purpose"], told["stackType"]) == (False, "PRIVATE", "IPV4_ONLY")


@pytest.mark.parametrize(("method", "what"), [("POST", ""), ("GET", ""), ("GET", "/subnet"), ("DELETE", "/subnet")])
@pytest.mark.parametrize("collection", ["subnetworks", "routers", "resourcePolicies"])
def test_region_that_google_does_not_have_is_refused(world, method, what, collection):
    world.network()
    path = f"{COMPUTE}/regions/us-mars1/{collection}{what}"
    assert world.refusal(method, path, {"name": "new", "network": NETWORK} if method == "POST" else None) == (
        400,
        "invalid",
        "Invalid value for field 'region': 'us-mars1'. Unknown region.",
    )


def test_subnet_in_a_region_without_tpus_is_made_and_listed_with_all_others(world):
    world.network()
    world.ask("POST", f"{COMPUTE}/regions/europe-west6/subnetworks", subnet())
    items = world.ask("GET", f"{COMPUTE}/aggregated/subnetworks")["items"]
    assert [one["name"] for one in items["regions/europe-west6"]["subnetworks"]] == ["default", "new"]


def test_subnet_patched_without_a_fingerprint_is_refused(world):
    world.network()
    assert world.refusal("PATCH", f"{SUBNETS}/subnet", {"privateIpGoogleAccess": True}) == (
        400,
        "required",
        "Required field 'resource.fingerprint' not specified",
    )


@pytest.mark.parametrize(
    "said",
    [{"name": "other"}, {"ipCidrRange": "10.0.0.0/16"}, {"network": f"projects/{PROJECT}/global/networks/other"}],
)
def test_subnet_patched_where_it_cannot_change_is_refused(world, said):
    world.network()
    before = read(world)
    assert world.refusal("PATCH", f"{SUBNETS}/subnet", patch(world, **said))[:2] == (400, "invalid")
    assert read(world) == before


def test_subnet_patched_with_all_that_was_read_is_changed_alone_where_it_may(world):
    world.network()
    before = read(world)
    sent = {**before, "id": "7", "selfLink": "x", "network": NETWORK, "description": "new"}
    world.ask("PATCH", f"{SUBNETS}/subnet", sent)
    after = read(world)
    assert after.pop("fingerprint") != before.pop("fingerprint")
    assert after == {**before, "description": "new"}


def test_network_patched_in_what_google_writes_stays_as_it_was(world):
    world.network()
    before = world.ask("GET", f"{NETWORKS}/net")
    world.ask("PATCH", f"{NETWORKS}/net", {"id": "7", "selfLink": "x", "kind": "y", "creationTimestamp": "z"})
    assert world.ask("GET", f"{NETWORKS}/net") == before


@pytest.mark.parametrize("said", [{"name": "other"}, {"autoCreateSubnetworks": True}])
def test_network_patched_where_it_cannot_change_is_refused(world, said):
    world.network()
    assert world.refusal("PATCH", f"{NETWORKS}/net", said)[:2] == (400, "invalid")


def test_network_made_with_fields_of_google_gets_its_own(world):
    world.ask("POST", NETWORKS, {"name": "net", "id": "7", "selfLink": "x", "autoCreateSubnetworks": False})
    told = world.ask("GET", f"{NETWORKS}/net")
    assert told["id"] != "7"
    assert told["selfLink"].endswith(NETWORK)


def test_subnet_range_is_expanded_by_the_method_for_it(world):
    world.network()
    before = read(world)
    world.ask("POST", f"{SUBNETS}/subnet/expandIpCidrRange", {"ipCidrRange": "10.0.0.0/18"})
    after = read(world)
    assert after["ipCidrRange"] == "10.0.0.0/18"
    assert after["fingerprint"] != before["fingerprint"]


@pytest.mark.parametrize("range_", ["10.0.0.0/22", "10.0.0.0/20", "10.32.0.0/16", "10.0.0.0/8", "banana", ""])
def test_subnet_range_expanded_to_one_that_is_no_wider_or_taken_is_refused(world, range_):
    world.network()
    path = f"{SUBNETS}/subnet/expandIpCidrRange"
    assert world.refusal("POST", path, {"ipCidrRange": range_})[:2] == (400, "invalid")


def test_subnet_is_given_access_to_google_by_the_method_for_it(world):
    world.network()
    world.ask("POST", f"{SUBNETS}/subnet/setPrivateIpGoogleAccess", {"privateIpGoogleAccess": True})
    assert read(world)["privateIpGoogleAccess"] is True


def test_methods_of_a_subnet_need_the_permissions_of_their_names(world):
    world.network()
    for method in ("expandIpCidrRange", "setPrivateIpGoogleAccess"):
        text = world.refusal("POST", f"{SUBNETS}/subnet/{method}", {}, principal="serviceAccount:a@b")[2]
        assert f"compute.subnetworks.{method}" in text


def test_network_in_auto_mode_has_a_subnet_in_every_region_and_takes_them_along(world):
    world.ask("POST", NETWORKS, {"name": "auto", "autoCreateSubnetworks": True})
    found = world.cloud.state.all("subnetwork")
    assert {name.split("/")[3] for name in found} == REGIONS
    ranges = [ipaddress.ip_network(one["ipCidrRange"]) for one in found.values()]
    assert len(set(ranges)) == len(REGIONS)
    assert all(one.subnet_of(ipaddress.ip_network("10.128.0.0/9")) and one.prefixlen == 20 for one in ranges)
    one = world.ask("GET", f"{COMPUTE}/regions/us-central1/subnetworks/auto")
    assert (one["ipCidrRange"], one["network"].rpartition("/")[2]) == ("10.128.0.0/20", "auto")
    world.ask("DELETE", f"{NETWORKS}/auto")
    assert world.cloud.inventory() == []


def test_network_in_auto_mode_that_fails_to_be_made_leaves_no_subnets(world):
    world.cloud.faults.set(Fault("fail", ".*", times=1))
    assert world.ask("POST", NETWORKS, {"name": "auto", "autoCreateSubnetworks": True})["error"]
    assert world.cloud.inventory() == []


def test_network_in_auto_mode_beside_a_subnet_of_its_name_is_refused(world):
    world.network()
    world.ask("POST", SUBNETS, subnet(name="auto"))
    before = world.cloud.inventory()
    asked = {"name": "auto", "autoCreateSubnetworks": True}
    assert world.refusal("POST", NETWORKS, asked)[:2] == (409, "alreadyExists")
    assert world.cloud.inventory() == before


def test_subnet_of_a_network_in_auto_mode_cannot_be_deleted_alone(world):
    world.ask("POST", NETWORKS, {"name": "auto", "autoCreateSubnetworks": True})
    assert world.refusal("DELETE", f"{SUBNETS}/auto")[:2] == (400, "invalidResourceUsage")


def test_subnet_added_to_a_network_in_auto_mode_holds_it(world):
    world.ask("POST", NETWORKS, {"name": "auto", "autoCreateSubnetworks": True})
    world.ask("POST", SUBNETS, subnet(network="global/networks/auto"))
    assert world.refusal("DELETE", f"{NETWORKS}/auto")[1] == "resourceInUseByAnotherResource"
    world.ask("DELETE", f"{SUBNETS}/new")
    world.ask("DELETE", f"{NETWORKS}/auto")
