"""Pod addresses: GKE takes a block for each node from a range of the subnet, which can be exhausted."""

from __future__ import annotations

import ipaddress
from collections import Counter

from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

DEFAULT_MAX_PODS = 110


def max_pods(cluster: Doc, pool: Doc) -> int:
    for holder, field in ((pool, "maxPodsConstraint"), (cluster, "defaultMaxPodsConstraint")):
        if value := (holder.get(field) or {}).get("maxPodsPerNode"):
            return int(value)
    return DEFAULT_MAX_PODS


def _ranges(cloud: Cloud, cluster: Doc) -> list[Doc]:
    """Return the secondary ranges of the subnet that provide the cluster's Pod addresses, its own first."""
    subnet = cloud.state.get("subnetwork", cluster["networkConfig"]["subnetwork"])
    policy = cluster.get("ipAllocationPolicy", {})
    wanted = [policy.get("clusterSecondaryRangeName"), *additional(cluster)]
    found = {each["rangeName"]: each for each in (subnet or {}).get("secondaryIpRanges", [])}
    return [found[name] for name in wanted if name in found]


def additional(cluster: Doc) -> list[str]:
    policy = cluster.get("ipAllocationPolicy", {})
    return list((policy.get("additionalPodRangesConfig") or {}).get("podRangeNames") or ())


def changed(cloud: Cloud, name: str, cluster: Doc, update: Doc) -> Doc | None:
    """Return the cluster with additional ranges added and removed; None if the update is about something else.

    A range can be removed once no pool uses it: the reference of ClusterUpdate. The words of the refusals are guesses.
    """
    more, less = update.get("additionalPodRangesConfig"), update.get("removedAdditionalPodRangesConfig")
    if more is None and less is None:
        return None
    subnet = cluster["networkConfig"]["subnetwork"]
    there = {each["rangeName"] for each in (cloud.state.get("subnetwork", subnet) or {}).get("secondaryIpRanges", [])}
    names = additional(cluster)
    for added in (more or {}).get("podRangeNames") or ():
        if added not in there:
            raise GUESS.invalid(f'Subnetwork "{subnet}" has no secondary range "{added}".')
        names.append(added)
    used = {(pool.get("networkConfig") or {}).get("podRange") for pool in cloud.state.all("pool", f"{name}/").values()}
    for removed in (less or {}).get("podRangeNames") or ():
        if removed in used:
            raise GUESS.invalid(f'Secondary range "{removed}" is used by a node pool.')
        names = [one for one in names if one != removed]
    policy = {key: value for key, value in cluster["ipAllocationPolicy"].items() if key != "additionalPodRangesConfig"}
    if names:
        policy["additionalPodRangesConfig"] = {"podRangeNames": sorted(set(names))}
    return {**cluster, "ipAllocationPolicy": policy}


def placed(cloud: Cloud, name: str, cluster: Doc, pool: Doc) -> Doc:
    """Return a new pool with its range: GKE chooses the one with the most room, unless the pool names one."""
    config = pool.get("networkConfig") or {}
    if not additional(cluster) or config.get("podRange") or config.get("createPodRange"):
        return pool
    used = _used(cloud, name, cluster)
    free = {each["rangeName"]: _size(each) - used[each["rangeName"]] for each in _ranges(cloud, cluster)}
    return {**pool, "networkConfig": {**config, "podRange": max(free, key=lambda one: free[one])}}


def _used(cloud: Cloud, name: str, cluster: Doc) -> Counter[str]:
    """Return the addresses that the nodes of each range take."""
    used: Counter[str] = Counter()
    for pool in cloud.state.all("pool", f"{name}/").values():
        nodes = pool["_size"] * len(pool["locations"])
        used[pool["networkConfig"]["podRange"]] += nodes * _block(max_pods(cluster, pool))
    return used


def _size(found: Doc) -> int:
    return ipaddress.ip_network(found["ipCidrRange"]).num_addresses


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
    """Refuse if the nodes of all pools need more addresses than their range has."""
    ranges = _ranges(cloud, cluster)
    if additional(cluster):
        used = _used(cloud, cluster_name, cluster)
    else:
        blocks = (
            nodes * _block(max_pods(cluster, {"maxPodsConstraint": {"maxPodsPerNode": pods}}))
            for pods, nodes in cloud.state.node_counts(cluster_name)
        )
        used = Counter({each["rangeName"]: sum(blocks) for each in ranges[:1]})
    for found in ranges:
        needed = used[found["rangeName"]]
        if needed > _size(found):
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
