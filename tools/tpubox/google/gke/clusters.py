"""GKE: clusters. A posted document is stored and returned with GKE's additions: endpoints, versions, a default pool."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tpubox.google.compute import network_rules, stock_and_quota
from tpubox.google.compute.names import network_name, relative, subnet_name, usable
from tpubox.google.gke import cluster_fields, node_pools
from tpubox.google.gke import defaults as gke_defaults
from tpubox.google.gke import names as gke_names
from tpubox.google.gke import versions as gke_versions
from tpubox.google.gke.container import CLUSTER, LOCATION, admit, api, find_cluster, scope
from tpubox.google.wire import etags
from tpubox.google.wire.api import After, Call, Started, merged
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GKE_EXISTS, GKE_NODE_COUNT, GKE_POOL_TWICE, GKE_REGIONAL, GUESS
from tpubox.google.wire.state import Doc
from tpukit.catalogue.zones import is_ai_zone

NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")


@api.on("GET", LOCATION + "/clusters")
def _listed(cloud: Cloud, call: Call) -> Doc:
    where = f"projects/{call['project']}/locations/" if call["location"] == "-" else f"{scope(call)}/clusters/"
    return {"clusters": [_body(cloud, name, doc) for name, doc in cloud.state.all("cluster", where).items()]}


@api.on("GET", CLUSTER)
def _show(cloud: Cloud, call: Call) -> Doc:
    return _body(cloud, *find_cluster(cloud, call))


def _body(cloud: Cloud, name: str, doc: Doc) -> Doc:
    mine = list(cloud.state.all("pool", f"{name}/").values())
    nodes = sum(len(pool["_nodes"]) for pool in mine)
    first = {"nodeConfig": mine[0]["config"]} if mine else {}
    return {
        **etags.shown(doc),
        **first,
        "instanceGroupUrls": [link for pool in mine for link in pool["instanceGroupUrls"]],
        "nodePools": [etags.shown(pool) for pool in mine],
        "currentNodeCount": nodes,
    }


@api.on("POST", LOCATION + "/clusters", body="CreateClusterRequest")
def _create(cloud: Cloud, call: Call) -> Started:
    body = call.body.get("cluster") or {}
    name = body.get("name", "")
    if not NAME.fullmatch(name):
        raise GUESS.invalid(f"Invalid value for field 'cluster.name': '{name}'. It must match {NAME.pattern}.")
    full = f"{scope(call)}/clusters/{name}"
    if cloud.state.get("cluster", full):
        raise GKE_EXISTS.exists(f"Already exists: {full}.")
    pools = _pools(body)
    made = _made(cloud, call, full, {key: value for key, value in body.items() if key != "nodePools"})
    cluster_fields.check(made)
    cloud.state.put("cluster", full, made)
    for pool in pools:
        node_pools.add(cloud, full, made, pool)
    return cloud.start(api, "CREATE_CLUSTER", scope(call), full)


def _pools(body: Doc) -> list[Doc]:
    """Return the initial pools. GKE treats zero and an empty list as absent fields."""
    count: int = body.get("initialNodeCount") or 0
    pools: list[Doc] = body.get("nodePools") or []
    if not pools:
        if count < 1 and not (body.get("autopilot") or {}).get("enabled"):
            raise GKE_NODE_COUNT.invalid("Cluster.initial_node_count must be greater than zero.")
        return [_default_pool(body)]
    if count or body.get("nodeConfig"):
        raise GUESS.invalid("Cluster.initial_node_count and node_config must not be set together with node_pools.")
    names = [pool["name"] for pool in pools if pool.get("name")]
    if len(set(names)) < len(names):
        raise GKE_POOL_TWICE.refused(500, "Internal error encountered.")
    return pools


def _made(cloud: Cloud, call: Call, full: str, body: Doc) -> Doc:
    location = call["location"]
    zones = stock_and_quota.zones(location)
    region = location if zones else location.rpartition("-")[0]
    if not zones and location not in stock_and_quota.zones():
        raise GUESS.invalid(f'Location "{location}" does not exist.')
    if not zones and (body.get("autopilot") or {}).get("enabled"):
        raise GKE_REGIONAL.invalid("Autopilot clusters must be regional clusters.")
    network, subnet = _network(cloud, call["project"], region, body)
    version = gke_versions.for_control_plane(body.get("initialClusterVersion", ""))
    address = cloud.settings.kubernetes or "127.0.0.1"
    dns = cloud.settings.kubernetes or f"gke-{body['name']}.{region}.gke.goog"
    added = {
        "location": location,
        "zone": location,
        "locations": _zones(body, zones) if zones else body.get("locations") or [location],
        "status": "PROVISIONING",
        "selfLink": f"https://container.googleapis.com/v1/{gke_names.place(full)}",
        "createTime": cloud.stamp(),
        "endpoint": address,
        "initialClusterVersion": version,
        "currentMasterVersion": version,
        "currentNodeVersion": version,
        "masterAuth": {"clusterCaCertificate": cloud.settings.kubernetes_ca},
        "networkConfig": {"network": network, "subnetwork": subnet},
        "controlPlaneEndpointsConfig": {
            "dnsEndpointConfig": {"endpoint": dns},
            "ipEndpointsConfig": {"publicEndpoint": address, "privateEndpoint": "10.0.0.2"},
        },
        "privateClusterConfig": {"publicEndpoint": address, "privateEndpoint": "10.0.0.2"},
        "_region": region,
        "_project": call["project"],
    }
    return merged(gke_defaults.cluster(cloud, call["project"], body, network, subnet), added)


def _zones(body: Doc, zones: Sequence[str]) -> list[str]:
    """Return the zones of a regional cluster. AI zones are used only when named."""
    return body.get("locations") or [zone for zone in zones if not is_ai_zone(zone)][:3]


def _network(cloud: Cloud, project: str, region: str, body: Doc) -> tuple[str, str]:
    """Return the full names of network and subnet, which must exist and have the ranges that the cluster names."""
    network = network_name(body.get("network") or "default", project)
    subnet = subnet_name(body.get("subnetwork") or network.rpartition("/")[2], project, region)
    if not usable(cloud, "network", network):
        raise GUESS.not_found(f'Network "{network}" does not exist.')
    found = usable(cloud, "subnetwork", subnet)
    if found is None or relative(found["network"], project) != network:
        raise GUESS.not_found(f'Subnetwork "{subnet}" does not exist in network "{network}".')
    network_rules.check_shared(cloud, project, subnet)
    names = {each["rangeName"] for each in found.get("secondaryIpRanges", ())}
    policy = body.get("ipAllocationPolicy") or {}
    for field in ("clusterSecondaryRangeName", "servicesSecondaryRangeName"):
        if policy.get(field) and policy[field] not in names:
            raise GUESS.invalid(f'Subnetwork "{subnet}" has no secondary range "{policy[field]}".')
    return network, subnet


def _default_pool(cluster: Doc) -> Doc:
    return {
        "name": "default-pool",
        "initialNodeCount": cluster.get("initialNodeCount", 0),
        "config": cluster.get("nodeConfig") or {},
    }


@api.on_operation_end("CREATE_CLUSTER")
def _came(cloud: Cloud, operation: Doc) -> After | None:
    full = operation["target"]
    cluster = cloud.state.get("cluster", full)
    if cluster is None:
        return None
    if operation["fail"]:
        cloud.fail(operation)
        cloud.state.delete("cluster", full)
        for name in cloud.state.all("pool", f"{full}/"):
            cloud.state.delete("pool", name)
        return None
    tellers = [node_pools.bring_up(cloud, operation, name) for name in cloud.state.all("pool", f"{full}/")]
    cloud.state.put("cluster", full, {**cluster, "status": "RUNNING"})
    if (cluster.get("workloadIdentityConfig") or {}).get("workloadPool"):
        cloud.state.put("identity_pool", cluster["_project"], {"since": cloud.stamp()})
    return lambda: _tell_all(tellers)


def _tell_all(tellers: list[After | None]) -> None:
    for tell in tellers:
        if tell:
            tell()


@api.on("DELETE", CLUSTER)
def _delete(cloud: Cloud, call: Call) -> Started:
    full, cluster = find_cluster(cloud, call)
    admit(cloud, full, full)
    cloud.state.put("cluster", full, {**cluster, "status": "STOPPING"})
    return cloud.start(api, "DELETE_CLUSTER", scope(call), full)


@api.on_operation_end("DELETE_CLUSTER")
def _went(cloud: Cloud, operation: Doc) -> After | None:
    return (lambda: _remove(cloud, operation["target"])) if node_pools.may_go(cloud, operation, "cluster") else None


def _remove(cloud: Cloud, full: str) -> None:
    for name in cloud.state.all("pool", f"{full}/"):
        node_pools.remove(cloud, name)
    cloud.state.delete("cluster", full)
