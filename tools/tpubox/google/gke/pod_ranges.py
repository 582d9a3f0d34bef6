"""Pod addresses: GKE takes a block for each node from a range of the subnet, which can be exhausted."""

from __future__ import annotations

import ipaddress

from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

DEFAULT_MAX_PODS = 110


def max_pods(cluster: Doc, pool: Doc) -> int:
    for holder, field in ((pool, "maxPodsConstraint"), (cluster, "defaultMaxPodsConstraint")):
        if value := (holder.get(field) or {}).get("maxPodsPerNode"):
            return int(value)
    return DEFAULT_MAX_PODS


def pods_range(cloud: Cloud, cluster: Doc) -> Doc | None:
    """Return the secondary range that provides the cluster's Pod addresses."""
    subnet = cloud.state.get("subnetwork", cluster["networkConfig"]["subnetwork"])
    wanted = cluster.get("ipAllocationPolicy", {}).get("clusterSecondaryRangeName")
    ranges: list[Doc] = (subnet or {}).get("secondaryIpRanges", [])
    return next((each for each in ranges if each["rangeName"] == wanted), None)


def check_named(cloud: Cloud, cluster: Doc, pool: Doc) -> None:
    """Refuse a pool that names a missing range, unless GKE is to create it."""
    config = pool.get("networkConfig") or {}
    name = config.get("podRange", "")
    if not name or config.get("createPodRange"):
        return
    subnet = cluster["networkConfig"]["subnetwork"]
    ranges = (cloud.state.get("subnetwork", subnet) or {}).get("secondaryIpRanges", [])
    if name not in [each["rangeName"] for each in ranges]:
        raise GUESS.invalid(f'Subnetwork "{subnet}" has no secondary range "{name}".')


def check(cloud: Cloud, cluster_name: str, cluster: Doc) -> None:
    """Refuse if the nodes of all pools need more addresses than the range has."""
    found = pods_range(cloud, cluster)
    if found is None:
        return
    needed = sum(
        nodes * _block(max_pods(cluster, {"maxPodsConstraint": {"maxPodsPerNode": pods}}))
        for pods, nodes in cloud.state.node_counts(cluster_name)
    )
    if needed > ipaddress.ip_network(found["ipCidrRange"]).num_addresses:
        range_ = f"{cluster['networkConfig']['subnetwork']}-{found['rangeName']}"
        raise GUESS.refused(
            400,
            f"IP space of '{range_}' is exhausted: "
            f"{found['ipCidrRange']} has fewer than the {needed} addresses that all nodes need.",
            reason="IP_SPACE_EXHAUSTED",
        )


def _block(pods: int) -> int:
    """Return twice the number of Pods, to delay the reuse of addresses, rounded up to a power of two."""
    return int(1 << (2 * pods - 1).bit_length())
