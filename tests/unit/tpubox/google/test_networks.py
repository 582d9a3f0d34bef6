"""The emulator refuses the same as Google for shared networks, routers, and regions without a service."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.google_world import PROJECT, World
from tpubox.google.wire.faults import Fault
from tpubox.google.wire.settings import number_of

HOST = "host-project"
REGION = "us-central2"
ROUTERS = f"compute/v1/projects/{PROJECT}/regions/{REGION}/routers"
SUBNET = f"projects/{HOST}/regions/{REGION}/subnetworks/subnet"
GKE = f"serviceAccount:service-{number_of(PROJECT)}@container-engine-robot.iam.gserviceaccount.com"
APIS = f"serviceAccount:{number_of(PROJECT)}@cloudservices.gserviceaccount.com"


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with World(tmp_path, projects=(PROJECT, HOST)) as made:
        yield made


def router(name: str, **nat: Any) -> dict[str, Any]:
    network = f"projects/{PROJECT}/global/networks/net"
    return {"name": name, "network": network, "nats": [{"name": f"{name}-nat", **nat}]}


def listed(subnet: str) -> dict[str, Any]:
    link = f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/regions/{REGION}/subnetworks/{subnet}"
    return {"sourceSubnetworkIpRangesToNat": "LIST_OF_SUBNETWORKS", "subnetworks": [{"name": link}]}


def add_subnet(world: World, name: str, range_: str) -> None:
    subnet = {"name": name, "network": f"projects/{PROJECT}/global/networks/net", "ipCidrRange": range_}
    world.ask("POST", f"compute/v1/projects/{PROJECT}/regions/{REGION}/subnetworks", subnet)


def test_nat_second_one_for_a_subnet_is_refused(world):
    world.network()
    add_subnet(world, "other", "10.9.0.0/24")
    world.ask("POST", ROUTERS, router("one", **listed("subnet")))
    status, word, text = world.refusal("POST", ROUTERS, router("two", **listed("subnet")))
    assert (status, word) == (400, "invalid")
    assert text.startswith("Invalid value for field 'resource.nats[0].subnetworks[0].sourceIpRangesToNat': ''.")
    world.ask("POST", ROUTERS, router("three", **listed("other")))


def test_nat_second_one_for_all_subnets_on_one_router_is_refused(world):
    world.network()
    option = {"sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}
    asked = {**router("one"), "nats": [{"name": "a", **option}, {"name": "b", **option}]}
    assert world.refusal("POST", ROUTERS, asked) == (
        400,
        "invalid",
        "Invalid value for field 'resource.nats[1].sourceSubnetworkIpRangesToNat': 'ALL_SUBNETWORKS_ALL_IP_RANGES'. "
        "Can not create new Nats since a Nat with option ALL_SUBNETWORKS_ALL_IP_RANGES exists.",
    )


def test_nat_for_all_subnets_beside_one_for_some_is_refused(world):
    world.network()
    option = {"sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}
    world.ask("POST", ROUTERS, router("one", **listed("subnet")))
    assert world.refusal("POST", ROUTERS, router("two", **option))[:2] == (400, "invalid")


def test_nat_private_one_beside_a_public_one_is_taken(world):
    world.network()
    option = {"sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES"}
    nats = [{"name": "a", **option}, {"name": "b", "type": "PRIVATE", **option}]
    world.ask("POST", ROUTERS, {**router("one"), "nats": nats})


def test_nat_of_a_subnet_that_is_not_there_is_refused(world):
    world.network()
    assert world.refusal("POST", ROUTERS, router("one", **listed("none")))[:2] == (404, "notFound")


def test_nat_beside_one_for_all_subnets_is_refused_also_as_a_change(world):
    world.network()
    world.ask("POST", ROUTERS, router("one", sourceSubnetworkIpRangesToNat="ALL_SUBNETWORKS_ALL_IP_RANGES"))
    world.ask("POST", ROUTERS, {**router("two"), "nats": []})
    assert world.refusal("PATCH", f"{ROUTERS}/two", {"nats": [{"name": "nat", **listed("subnet")}]})[0] == 400
    world.ask("PATCH", f"{ROUTERS}/one", {"nats": []})
    world.ask("PATCH", f"{ROUTERS}/two", {"nats": [{"name": "nat", **listed("subnet")}]})


def test_network_of_a_subnet_is_given_back_with_its_full_address(world):
    world.network()
    found = world.ask("GET", f"compute/v1/projects/{PROJECT}/regions/{REGION}/subnetworks/subnet")
    assert found["network"] == f"https://www.googleapis.com/compute/v1/projects/{PROJECT}/global/networks/net"


def shared(world: World) -> dict[str, Any]:
    """Create a subnet in the host project, and return a request for another project's cluster on it."""
    network = f"projects/{HOST}/global/networks/net"
    world.ask("POST", f"compute/v1/projects/{HOST}/global/networks", {"name": "net"})
    wanted = {"name": "subnet", "network": network, "ipCidrRange": "10.0.0.0/20"}
    ranges = [{"rangeName": "pods", "ipCidrRange": "10.64.0.0/14"}]
    world.ask(
        "POST", f"compute/v1/projects/{HOST}/regions/{REGION}/subnetworks", {**wanted, "secondaryIpRanges": ranges}
    )
    cluster = {"name": "one", "locations": [f"{REGION}-b"], "initialNodeCount": 1}
    return {"cluster": {**cluster, "network": network, "subnetwork": SUBNET}}


def grant(world: World, path: str, *bindings: tuple[str, str]) -> None:
    world.ask("POST", path, {"policy": {"bindings": [{"role": role, "members": [who]} for role, who in bindings]}})


def test_cluster_on_a_shared_subnet_needs_the_rights_that_google_asks_for(world):
    asked = shared(world)
    clusters = f"container/v1/projects/{PROJECT}/locations/{REGION}/clusters"
    status, _, message = world.refusal("POST", clusters, asked)
    assert (status, "Kubernetes Engine Service Agent is missing" in message) == (403, True)
    host = f"resource_manager/v1/projects/{HOST}:setIamPolicy"
    grant(world, host, ("roles/container.hostServiceAgentUser", GKE))
    status, _, message = world.refusal("POST", clusters, asked)
    assert (status, message) == (
        403,
        f"Google Compute Engine: Required 'compute.subnetworks.use' permission for '{SUBNET}'.",
    )
    user = "roles/compute.networkUser"
    grant(world, f"compute/v1/{SUBNET}/setIamPolicy", (user, GKE), (user, APIS))
    world.ask("POST", clusters, asked)
    status, _, message = world.refusal("DELETE", f"compute/v1/{SUBNET}")
    assert (status, "already being used by" in message) == (400, True)


def test_tensorboard_in_a_region_without_it_is_refused(world):
    boards = "vertex_ai/v1/projects/{}/locations/{}/tensorboards"
    assert world.refusal("POST", boards.format(PROJECT, "us-central2"), {"displayName": "x"})[0] == 404
    assert world.refusal("POST", boards.format(PROJECT, "us-east5"), {"displayName": "x"})[0] == 404
    world.ask("POST", boards.format(PROJECT, "us-central1"), {"displayName": "x"})


def test_patch_that_fails_leaves_the_router_as_it_was(world):
    world.network()
    world.ask("POST", ROUTERS, {"name": "router", "network": f"projects/{PROJECT}/global/networks/net"})
    world.pass_time(1000)
    world.cloud.faults.set(Fault("fail", "^patch ", times=1, message="An internal error has occurred."))
    nat = {
        "name": "nat",
        "natIpAllocateOption": "AUTO_ONLY",
        "sourceSubnetworkIpRangesToNat": "ALL_SUBNETWORKS_ALL_IP_RANGES",
    }
    world.ask("PATCH", f"{ROUTERS}/router", {"nats": [nat]})
    world.pass_time(1000)
    assert not world.ask("GET", f"{ROUTERS}/router").get("nats")
    world.ask("PATCH", f"{ROUTERS}/router", {"nats": [nat]})
    world.pass_time(1000)
    assert [one["name"] for one in world.ask("GET", f"{ROUTERS}/router")["nats"]] == ["nat"]
