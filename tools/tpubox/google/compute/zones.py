"""Compute Engine: regions with their quotas, zones, and the instance groups of node pools.

A pool has one group in each of its zones, derived from the pool; Terraform counts nodes by it. A group is stable while
all of its machines run; preempted or lost machines are recreated.
"""

from __future__ import annotations

import base64
import zlib

from tpubox.google.compute import stock_and_quota
from tpubox.google.compute.names import ROOT, not_found
from tpubox.google.compute.networks import api
from tpubox.google.wire.api import Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc

_ACTIONS = {"TERMINATED": "RECREATING"}
"""Action of a group manager by machine status. Waiting for a STOPPING machine is a guess."""


def group(cluster: str, pool: str, mark: str) -> str:
    """Return the name of a pool's instance groups; the names of its nodes share the prefix."""
    return f"gke-{cluster}-{pool}-{mark}-grp"


def group_link(project: str, zone: str, name: str) -> str:
    return f"{ROOT}/projects/{project}/zones/{zone}/instanceGroupManagers/{name}"


@api.on("GET", "projects/{project}/regions/{region}")
def _region(cloud: Cloud, call: Call) -> Doc:
    name = call["region"]
    zones = stock_and_quota.zones(name)
    if not zones:
        raise not_found(f"projects/{call['project']}/regions/{name}")
    return _region_body(cloud, call["project"], name)


def _region_body(cloud: Cloud, project: str, name: str) -> Doc:
    links = [f"{ROOT}/projects/{project}/zones/{zone}" for zone in stock_and_quota.zones(name)]
    body = {"kind": "compute#region", "name": name, "status": "UP", "zones": links}
    return {
        **body,
        "quotas": stock_and_quota.quotas(cloud, name),
        "selfLink": f"{ROOT}/projects/{project}/regions/{name}",
    }


@api.on("GET", "projects/{project}/regions", lists="Region")
def _regions(cloud: Cloud, call: Call) -> Doc:
    return {"items": [_region_body(cloud, call["project"], region) for region in stock_and_quota.regions()]}


@api.on("GET", "projects/{project}/zones", lists="Zone")
def _zones(cloud: Cloud, call: Call) -> Doc:
    return {"items": [_zone_body(call["project"], zone) for zone in stock_and_quota.zones()]}


@api.on("GET", "projects/{project}/zones/{zone}")
def _zone(cloud: Cloud, call: Call) -> Doc:
    if call["zone"] not in stock_and_quota.zones():
        raise not_found(f"projects/{call['project']}/zones/{call['zone']}")
    return _zone_body(call["project"], call["zone"])


def _zone_body(project: str, zone: str) -> Doc:
    region = f"{ROOT}/projects/{project}/regions/{zone.rpartition('-')[0]}"
    link = f"{ROOT}/projects/{project}/zones/{zone}"
    return {"kind": "compute#zone", "name": zone, "status": "UP", "region": region, "selfLink": link}


@api.on("GET", "projects/{project}/zones/{zone}/instanceGroupManagers", lists="InstanceGroupManager")
def _listed(cloud: Cloud, call: Call) -> Doc:
    return {"items": _managers(cloud, call)}


@api.on("GET", "projects/{project}/zones/{zone}/instanceGroups", lists="InstanceGroup")
def _listed_groups(cloud: Cloud, call: Call) -> Doc:
    return {"items": [_instance_group(manager) for manager in _managers(cloud, call)]}


@api.on("GET", "projects/{project}/zones/{zone}/instanceGroups/{name}")
def _group(cloud: Cloud, call: Call) -> Doc:
    return _instance_group(_manager(cloud, call, *_pool_of(cloud, call)))


@api.on("GET", "projects/{project}/zones/{zone}/instanceGroupManagers/{name}")
def _show_manager(cloud: Cloud, call: Call) -> Doc:
    return _manager(cloud, call, *_pool_of(cloud, call))


def _instance_group(manager: Doc) -> Doc:
    """Return the instance group of a manager."""
    return {
        "kind": "compute#instanceGroup",
        "name": manager["name"],
        "selfLink": manager["selfLink"].replace("/instanceGroupManagers/", "/instanceGroups/"),
        "zone": manager["zone"],
        "size": manager["targetSize"],
    }


def _pool_of(cloud: Cloud, call: Call) -> tuple[str, Doc]:
    """Return the pool that owns the named group."""
    group = cloud.state.get("group", call["name"].removesuffix("-grp"))
    full = f"{group['cluster']}/nodePools/{group['pool']}" if group else ""
    pool = cloud.state.get("pool", full) if full.startswith(f"projects/{call['project']}/") else None
    if pool is None or pool["_group"] != call["name"] or call["zone"] not in pool["locations"]:
        missing = f"projects/{call['project']}/zones/{call['zone']}/instanceGroupManagers/{call['name']}"
        raise not_found(missing)
    return full, pool


@api.on(
    "POST", "projects/{project}/zones/{zone}/instanceGroupManagers/{name}/listManagedInstances", lists="ManagedInstance"
)
def _instances(cloud: Cloud, call: Call) -> Doc:
    root = f"{ROOT}/projects/{call['project']}/zones/{call['zone']}/instances"
    managed = [
        {"instance": f"{root}/{node}", "instanceStatus": status, "currentAction": _ACTIONS.get(status, "NONE")}
        for node, status in _statuses(cloud, *_pool_of(cloud, call), call["zone"]).items()
    ]
    return {"managedInstances": managed}


def _statuses(cloud: Cloud, full: str, pool: Doc, zone: str) -> dict[str, str]:
    """Return the statuses of a pool's machines in a zone."""
    down = cloud.hooks.not_running(full) if pool["_nodes"] else {}
    return {node: down.get(node, "RUNNING") for node, where in pool["_nodes"].items() if where == zone}


def _managers(cloud: Cloud, call: Call) -> list[Doc]:
    pools = cloud.state.all("pool", f"projects/{call['project']}/").items()
    return [_manager(cloud, call, full, pool) for full, pool in pools if call["zone"] in pool["locations"]]


def _manager(cloud: Cloud, call: Call, full: str, pool: Doc) -> Doc:
    statuses = list(_statuses(cloud, full, pool, call["zone"]).values())
    base = pool["_group"].removesuffix("-grp")
    zone = f"{ROOT}/projects/{call['project']}/zones/{call['zone']}"
    number = zlib.crc32(f"{call['zone']} {pool['_group']}".encode())
    return {
        "id": str(10**18 + number),
        "fingerprint": base64.b64encode(number.to_bytes(8, "big")).decode(),
        "baseInstanceName": base,
        "instanceGroup": f"{zone}/instanceGroups/{pool['_group']}",
        "instanceTemplate": f"{ROOT}/projects/{call['project']}/global/instanceTemplates/{base}",
        "instanceLifecyclePolicy": {"defaultActionOnFailure": "REPAIR", "forceUpdateOnRepair": "YES"},
        "updatePolicy": {
            "maxSurge": {"fixed": 1},
            "maxUnavailable": {"fixed": 1},
            "minimalAction": "REPLACE",
            "replacementMethod": "SUBSTITUTE",
            "type": "OPPORTUNISTIC",
        },
        "currentActions": {
            "none": sum(status not in _ACTIONS for status in statuses),
            "recreating": sum(status in _ACTIONS for status in statuses),
        },
        "kind": "compute#instanceGroupManager",
        "name": pool["_group"],
        "selfLink": group_link(call["project"], call["zone"], pool["_group"]),
        "zone": zone,
        "targetSize": pool["_size"],
        "status": {"isStable": set(statuses) <= {"RUNNING"}},
    }
