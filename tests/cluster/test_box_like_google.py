"""Where a box was kinder than Google, or stranger: clusters side by side in one box."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from box import ZONE, Box, sandbox, until

PROJECT = "projects/tpu-project"
CLUSTERS = f"container/v1/{PROJECT}/locations/us-central2/clusters"


@pytest.fixture(scope="module")
def box(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Box]:
    with sandbox(tmp_path_factory.mktemp("google"), "google") as made:
        network, compute = f"{PROJECT}/global/networks/net", f"compute/v1/{PROJECT}"
        made.ask("POST", f"{compute}/global/networks", {"name": "net", "autoCreateSubnetworks": False})
        subnet = {"name": "subnet", "ipCidrRange": "10.0.0.0/16", "network": network}
        made.ask("POST", f"{compute}/regions/us-central2/subnetworks", subnet)
        yield made


def make_cluster(box: Box, name: str, nodes: int = 1) -> None:
    wanted: dict[str, Any] = {"name": name, "initialNodeCount": nodes, "locations": [ZONE]}
    box.ask("POST", CLUSTERS, {"cluster": {**wanted, "network": "net", "subnetwork": "subnet"}})
    until(lambda: box.ask("GET", f"{CLUSTERS}/{name}")["status"] == "RUNNING", f"cluster {name}")


def nodes(box: Box) -> list[str]:
    """The clusters that the nodes of a pool called default-pool say that they are of."""
    found = box.cluster.list("Node", labels="cloud.google.com/gke-nodepool=default-pool")
    return sorted(node["metadata"]["name"].split("-")[1] for node in found)


def test_two_clusters_with_pools_of_one_name_have_nodes_of_their_own_and_one_is_deleted_alone(box: Box):
    make_cluster(box, "aa", 1)
    make_cluster(box, "bb", 2)
    assert nodes(box) == ["aa", "bb", "bb"]
    box.ask("DELETE", f"{CLUSTERS}/aa")
    until(lambda: "aa" not in nodes(box), "the nodes of aa to go")
    assert nodes(box) == ["bb", "bb"]
    assert box.ask("GET", f"{CLUSTERS}/bb")["currentNodeCount"] == 2
    box.ask("DELETE", f"{CLUSTERS}/bb")
    until(lambda: nodes(box) == [], "the nodes of bb to go")
