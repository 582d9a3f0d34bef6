"""GKE: node pools. A pool is PROVISIONING until its operation ends; its nodes are in Kubernetes by then."""

from __future__ import annotations

import itertools
import zlib

from tpubox.google.compute import stock_and_quota
from tpubox.google.compute import zones as compute_zones
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.gke import defaults as gke_defaults
from tpubox.google.gke import pod_ranges, pool_checks, pool_fields
from tpubox.google.gke import versions as gke_versions
from tpubox.google.gke.container import CLUSTER, POOL, admit, api, find_cluster_of_pools, find_pool, pool_of, scope
from tpubox.google.gke.pool_nodes import described
from tpubox.google.wire import etags
from tpubox.google.wire.api import After, Call, Started, merged
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import GKE_EXISTS, GKE_STOCKOUT, GUESS
from tpubox.google.wire.state import Doc

HEAL_SECONDS = 60.0
"""Interval at which GKE retries a pool that found no chips."""
_FILLED = ("machineType", "diskSizeGb", "diskType", "imageType", "serviceAccount")
_HEADS = {"GCE_QUOTA_EXCEEDED": "Insufficient quota to satisfy the request"}
"""Start of the error of a pool without machines, by reason; by default it names Compute Engine."""


@api.on("GET", CLUSTER + "/nodePools")
def _listed(cloud: Cloud, call: Call) -> Doc:
    cluster, _ = find_cluster_of_pools(cloud, call)
    return {"nodePools": [etags.shown(doc) for doc in cloud.state.all("pool", f"{cluster}/").values()]}


@api.on("GET", POOL)
def _show(cloud: Cloud, call: Call) -> Doc:
    find_cluster_of_pools(cloud, call)
    return etags.shown(find_pool(cloud, pool_of(call)))


@api.on("POST", CLUSTER + "/nodePools", body="CreateNodePoolRequest")
def _create(cloud: Cloud, call: Call) -> Started:
    cluster_name, cluster = find_cluster_of_pools(cloud, call)
    body = call.body.get("nodePool") or {}
    name = body.get("name", "")
    pool_fields.check_name(name)
    full = f"{cluster_name}/nodePools/{name}"
    if cloud.state.get("pool", full):
        raise GKE_EXISTS.exists(f"Already exists: {full}.")
    admit(cloud, cluster_name, full)
    add(cloud, cluster_name, cluster, body)
    return cloud.start(api, "CREATE_NODE_POOL", scope(call), full)


def add(cloud: Cloud, cluster_name: str, cluster: Doc, body: Doc) -> str:
    """Check a pool and store it as PROVISIONING; return its full name."""
    pool_fields.check_name(body.get("name", ""))
    pod_ranges.check_named(cloud, cluster, body)
    pool = _complete(cluster, pod_ranges.placed(cloud, cluster_name, cluster, body))
    wish = pool_checks.check(cloud, cluster, pool)
    full = f"{cluster_name}/nodePools/{pool['name']}"
    if wish.holding:
        stock_and_quota.check_gke(cloud, wish.holding, full)
    stock_and_quota.check_disks(cloud, pool, wish.nodes, full)
    mark = f"{zlib.crc32(f'{full} {cloud.state.next()}'.encode()):08x}"
    group = compute_zones.group(cluster["name"][:20], pool["name"][:20], mark)
    made = {
        **pool,
        "status": "PROVISIONING",
        "selfLink": f"https://container.googleapis.com/v1/{full}",
        "etag": mark,
        "instanceGroupUrls": [
            compute_zones.group_link(cluster["_project"], zone, group) for zone in sorted(pool["locations"])
        ],
        "_group": group,
        "_size": wish.nodes,
        "_nodes": {},
        "_holds": wish.holding.doc() if wish.holding else None,
        "_several_hosts": wish.several_hosts,
        "_topology": wish.slice.topology if wish.slice else None,
    }
    cloud.state.put("pool", full, made)
    # Logs of its Pods need their cluster long after the pool is deleted.
    cloud.state.put("group", group.removesuffix("-grp"), {"cluster": cluster_name, "pool": pool["name"]})
    return full


def _complete(cluster: Doc, body: Doc) -> Doc:
    """Return the pool with GKE's defaults. GKE treats zero and empty values as absent fields."""
    config = {key: value for key, value in (body.get("config") or {}).items() if value or key not in _FILLED}
    own = {key: value for key, value in body.items() if value or key != "locations"}
    version = gke_versions.for_nodes(cluster, body.get("version", ""))
    defaults = gke_defaults.pool(cluster, body, pool_checks.capacity_of(config))
    made = merged(defaults, {**own, "config": config})
    if body.get("management") is not None:
        # GKE treats an absent part as disabled.
        made["management"] = {"autoRepair": False, "autoUpgrade": False, **body["management"]}
    made["config"]["bootDisk"] = gke_defaults.boot_disk(made["config"])
    return {**made, "version": version}


@api.on_operation_end("AUTOSCALE", "CREATE_NODE_POOL", "HEAL_NODE_POOL", "SET_NODE_POOL_SIZE")
def _came(cloud: Cloud, operation: Doc) -> After | None:
    full = operation["target"]
    pool = cloud.state.get("pool", full)
    if pool is None or (operation["type"] == "HEAL_NODE_POOL" and pool["status"] != "ERROR"):
        return None
    if operation["fail"]:
        if operation["type"] == "CREATE_NODE_POOL":
            cloud.state.delete("pool", full)
        else:
            cloud.state.put("pool", full, {**pool, "status": "RUNNING", **operation["about"]["before"]})
        cloud.fail(operation)
        return None
    return bring_up(cloud, operation, full)


def bring_up(cloud: Cloud, operation: Doc, full: str) -> After | None:
    """Give a pool its nodes, or leave it in ERROR; the returned function reports them to Kubernetes."""
    pool = find_pool(cloud, full)
    cluster_name = full.partition("/nodePools/")[0]
    cluster = cloud.state.get("cluster", cluster_name)
    assert cluster is not None
    holding = Holding(**pool["_holds"]) if pool["_holds"] else None
    if not (holding and holding.up):
        try:
            pod_ranges.check(cloud, cluster_name, cluster)
            if holding:
                stock_and_quota.find(cloud, holding, full)
        except Refused as refused:
            _stay_down(cloud, operation, full, pool, refused)
            return None
    up = holding.doc(up=bool(holding.chips)) if holding else None
    broken = cloud.faults.strike("broken", f"{operation['type']} {full}")
    status = (broken.message or "RUNNING_WITH_ERROR") if broken else "RUNNING"
    nodes = _nodes(pool)
    cloud.state.put("pool", full, {**pool, "_nodes": nodes, "_holds": up, "_preempted": "", "_leaving": []})
    return lambda: _tell(cloud, full, status)


def _nodes(pool: Doc) -> dict[str, str]:
    """Return the nodes with their zones, the same number in each: existing ones that need not leave, and new ones."""
    stay = {name: zone for name, zone in pool["_nodes"].items() if name not in pool.get("_leaving", ())}
    names = (f"{pool['_group'].removesuffix('-grp')}-{number:04x}" for number in itertools.count())
    new = (name for name in names if name not in stay)
    nodes: dict[str, str] = {}
    for zone in sorted(pool["locations"]):
        have = [name for name in sorted(stay) if stay[name] == zone][: pool["_size"]]
        nodes |= dict.fromkeys([*have, *itertools.islice(new, pool["_size"] - len(have))], zone)
    return dict(sorted(nodes.items()))


def _tell(cloud: Cloud, full: str, status: str) -> None:
    try:
        cloud.hooks.on_pool_created(described(cloud, full))
    except Exception as error:
        status = "ERROR"
        raise GUESS.refused(500, f"Nodes of {full} did not come up: {error}") from error
    finally:
        with cloud.state.transaction():
            if pool := cloud.state.get("pool", full):
                latest = {key: value for key, value in pool.items() if key not in ("conditions", "statusMessage")}
                cloud.state.put("pool", full, {**latest, "status": status})


def _stay_down(cloud: Cloud, operation: Doc, full: str, pool: Doc, refused: Refused) -> None:
    if operation["type"] == "AUTOSCALE":
        cloud.state.put("pool", full, {**pool, **pool["_before"], "_unfilled": refused.reason})
        return
    why = f"Instance '{pool['_group'].removesuffix('-grp')}-0000' creation failed: {refused.message}"
    message = (
        f"{_HEADS.get(refused.reason, 'Google Compute Engine')}: Not all instances running in IGM after "
        f"{_for(cloud.clock.now() - operation['started'])}. Expected {pool['_size']}, running 0, transitioning "
        f"{pool['_size']}. Current errors: [{refused.reason}]: {why}"
    )
    known = refused.reason if refused.reason in ("GCE_STOCKOUT", "GCE_QUOTA_EXCEEDED") else "UNKNOWN"
    conditions = [{"code": known, "canonicalCode": refused.status, "message": why}]
    down = {**pool, "status": "ERROR", "statusMessage": message, "conditions": conditions}
    cloud.state.put("pool", full, down)
    cloud.fail(operation, GKE_STOCKOUT.refused(refused.code, message, reason=refused.reason))
    cloud.later(api, "HEAL_NODE_POOL", full, HEAL_SECONDS)


def _for(seconds: float) -> str:
    """Format a duration as Go does."""
    minutes, rest = divmod(round(seconds, 3), 60)
    return f"{minutes:g}m{rest:g}s" if minutes else f"{rest:g}s"


@api.on("DELETE", POOL)
def _delete(cloud: Cloud, call: Call) -> Started:
    cluster_name, _ = find_cluster_of_pools(cloud, call)
    full = pool_of(call)
    pool = find_pool(cloud, full)
    admit(cloud, cluster_name, full)
    cloud.state.put("pool", full, {**pool, "status": "STOPPING"})
    return cloud.start(api, "DELETE_NODE_POOL", scope(call), full)


@api.on_operation_end("DELETE_NODE_POOL")
def _went(cloud: Cloud, operation: Doc) -> After | None:
    return (lambda: remove(cloud, operation["target"])) if may_go(cloud, operation, "pool") else None


def may_go(cloud: Cloud, operation: Doc, kind: str) -> bool:
    """Return whether an operation deletes its cluster or pool. If the operation fails, that runs on."""
    doc = cloud.state.get(kind, operation["target"])
    if doc is not None and operation["fail"]:
        cloud.state.put(kind, operation["target"], {**doc, "status": "RUNNING"})
        cloud.fail(operation)
    return doc is not None and not operation["fail"]


def remove(cloud: Cloud, full: str) -> None:
    """Delete a pool: first its nodes from Kubernetes, then the pool."""
    cloud.hooks.on_pool_deleted(described(cloud, full))
    cloud.state.delete("pool", full)
