"""GKE: common parts of clusters and node pools: paths, operations, and the limit of concurrent operations."""

from __future__ import annotations

from tpubox.google.gke import names as gke_names
from tpubox.google.gke.pool_fields import IMAGES
from tpubox.google.gke.versions import VERSIONS
from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud, stamp
from tpubox.google.wire.refusal import CODES
from tpubox.google.wire.sources import (
    GKE_AUTOPILOT,
    GKE_INCOMPATIBLE,
    GKE_NOT_FOUND,
    GKE_OPERATIONS,
    GKE_POOL_NOT_FOUND,
    GKE_UNDER_WAY,
)
from tpubox.google.wire.state import Doc

LOCATION = "projects/{project}/locations/{location}"
CLUSTER = LOCATION + "/clusters/{cluster}"
POOL = CLUSTER + "/nodePools/{pool}"

_TYPES = {"UPDATE_NODE_POOL": "UPGRADE_NODES"}
"""Operation types as the API names them. The type of a pool change is a guess."""
_DOING = {"CREATE_NODE_POOL": "creating a node pool for", "DELETE_NODE_POOL": "deleting a node pool for"}
"""Operations as error messages name them. `upgrading` is known for version changes and a guess for all others."""


def operation(doc: Doc) -> Doc:
    """Return an operation as GKE writes it. Clients read failures from statusMessage alone, so it is always present."""
    root = "https://container.googleapis.com/v1"
    body = {
        "name": doc["id"],
        "operationType": _TYPES.get(doc["type"], doc["type"]),
        "status": "DONE" if doc["done"] else "RUNNING",
        "selfLink": f"{root}/{gke_names.numbered(doc['scope'])}/operations/{doc['id']}",
        "targetLink": f"{root}/{gke_names.numbered(doc['target'])}",
        "location": doc["scope"].rpartition("/")[2],
        "zone": doc["scope"].rpartition("/")[2],
        "startTime": stamp(doc["started"]),
    }
    if doc["done"]:
        body["endTime"] = stamp(doc["ended"])
    if doc["error"]:
        body["statusMessage"] = doc["error"]["message"]
        body["error"] = {"code": CODES.get(doc["error"]["status"], 2), "message": doc["error"]["message"]}
    return body


api = Api(
    "container",
    service="container.googleapis.com",
    document="container",
    title="Kubernetes Engine API",
    permissions="container",
    reasons_too=True,
    operation=operation,
)


def scope(call: Call) -> str:
    return f"projects/{call['project']}/locations/{call['location']}"


def cluster_of(call: Call) -> str:
    return f"{scope(call)}/clusters/{call['cluster']}"


def pool_of(call: Call) -> str:
    return f"{cluster_of(call)}/nodePools/{call['pool']}"


def find_cluster(cloud: Cloud, call: Call) -> tuple[str, Doc]:
    name = cluster_of(call)
    doc = cloud.state.get("cluster", name)
    if doc is None:
        raise GKE_NOT_FOUND.not_found(f"Not found: {gke_names.place(name)}.")
    return name, doc


def find_cluster_of_pools(cloud: Cloud, call: Call) -> tuple[str, Doc]:
    """Return the cluster for a request on its pools, which Autopilot refuses."""
    name, doc = find_cluster(cloud, call)
    if (doc.get("autopilot") or {}).get("enabled"):
        raise GKE_AUTOPILOT.invalid("Autopilot node pools cannot be accessed or modified.")
    return name, doc


def find_pool(cloud: Cloud, name: str) -> Doc:
    doc = cloud.state.get("pool", name)
    if doc is None:
        raise GKE_POOL_NOT_FOUND.not_found(f'Not found: node pool "{name.rpartition("/")[2]}" not found.')
    return doc


def admit(cloud: Cloud, cluster: str, target: str) -> None:
    """Refuse a change that conflicts with a running one.

    A change of the cluster conflicts with every other; changes of different pools may run together, up to a limit.
    """
    running, name = cloud.running(cluster), cluster.rpartition("/")[2]
    for doc in running:
        if cluster in (doc["target"], target):
            raise GKE_INCOMPATIBLE.not_ready(f"Cluster is running incompatible operation {doc['id']}.")
        if doc["target"] == target:
            doing = _DOING.get(doc["type"], "upgrading")
            raise GKE_UNDER_WAY.not_ready(
                f"Operation {doc['id']} is currently {doing} cluster {name}. Please wait and try again once it is done."
            )
    most = cloud.settings.cluster_operations
    if len(running) >= most:
        raise GKE_OPERATIONS.refused(
            429,
            f'Too many operations: cluster "{name}" hits the concurrent operations quota {most}, '
            "please try again later.",
        )


@api.on("GET", LOCATION + "/operations")
def _operations(cloud: Cloud, call: Call) -> Doc:
    found = [
        doc
        for doc in cloud.state.all("operation").values()
        if doc["api"] == api.name and _is_in(doc["scope"], call) and not doc["hidden"]
    ]
    return {"operations": [operation(doc) for doc in found]}


def _is_in(name: str, call: Call) -> bool:
    """Return True if the location matches; `-` matches every location."""
    return name == scope(call) or (call["location"] == "-" and name.startswith(f"projects/{call['project']}/"))


@api.on("GET", LOCATION + "/operations/{operation}")
def _operation(cloud: Cloud, call: Call) -> Doc:
    return cloud.operation(api, call["operation"], scope(call))


@api.on("GET", LOCATION + "/serverConfig")
def _versions(cloud: Cloud, call: Call) -> Doc:
    channels = [
        {"channel": name, "defaultVersion": VERSIONS[0], "validVersions": list(VERSIONS)}
        for name in ("RAPID", "REGULAR", "STABLE", "EXTENDED")
    ]
    return {
        "defaultClusterVersion": VERSIONS[0],
        "validMasterVersions": list(VERSIONS),
        "validNodeVersions": list(VERSIONS),
        "validImageTypes": list(IMAGES),
        "channels": channels,
    }
