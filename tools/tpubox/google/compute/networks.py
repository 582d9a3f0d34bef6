"""Compute Engine: networks, the resources in them, and workload policies.

The collections of this API behave alike; a table holds their differences.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from tpubox.google.compute import (
    auto_subnets,
    default_network,
    firewall_rules,
    network_rules,
    network_users,
    subnet_ranges,
)
from tpubox.google.compute import documents as compute_documents
from tpubox.google.compute.names import NAME, ROOT, find, find_ready, relative
from tpubox.google.iam import policy
from tpubox.google.wire import paging
from tpubox.google.wire.api import Api, Call, Started
from tpubox.google.wire.cloud import Cloud, stamp
from tpubox.google.wire.regions import REGIONS
from tpubox.google.wire.sources import COMPUTE_EXISTS, COMPUTE_IN_USE, GUESS, UNKNOWN_REGION
from tpubox.google.wire.state import Doc


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind of resource: its path, its message, and whether it belongs to a network."""

    path: str  # relative to the project
    kind: str
    message: str
    in_network: bool = True
    changed_by: str = "PATCH"


COLLECTIONS = (
    Collection("global/networks", "network", "Network", in_network=False),
    Collection("global/firewalls", "firewall", "Firewall", changed_by="PATCH PUT"),
    Collection("regions/{region}/subnetworks", "subnetwork", "Subnetwork"),
    Collection("regions/{region}/routers", "router", "Router", changed_by="PATCH PUT"),
    Collection("regions/{region}/resourcePolicies", "resourcePolicy", "ResourcePolicy", in_network=False),
)


def operation(doc: Doc) -> Doc:
    """Return an operation as Compute Engine writes it. A regional one must name its region to be polled there."""
    body = {
        "kind": "compute#operation",
        "id": str(zlib.crc32(doc["id"].encode())),
        "name": doc["id"],
        "operationType": doc["type"],
        "targetId": doc["about"].get("id", "0"),
        "targetLink": f"{ROOT}/{doc['target']}",
        "user": doc["about"].get("user", ""),
        "selfLink": f"{ROOT}/{doc['scope']}/operations/{doc['id']}",
        "status": "DONE" if doc["done"] else "RUNNING",
        "progress": 100 if doc["done"] else 0,
        "insertTime": stamp(doc["started"]),
        "startTime": stamp(doc["started"]),
    }
    for around in ("region", "zone"):
        if f"/{around}s/" in doc["scope"]:
            body[around] = f"{ROOT}/{doc['scope']}"
    if doc["done"]:
        body["endTime"] = stamp(doc["ended"])
    if doc["error"]:
        error = doc["error"]
        body["error"] = {"errors": [{"code": error["status"], "message": error["message"]}]}
        body["httpErrorStatusCode"] = error["code"]
        body["httpErrorMessage"] = error["status"]
    return body


api = Api(
    "compute",
    service="compute.googleapis.com",
    document="compute",
    title="Compute Engine API",
    permissions="compute",
    # The provider sends some of its own fields, so Google must ignore them.
    own_front=True,
    operation=operation,
    furnish=[default_network.make],
)


def _register(collection: Collection) -> None:
    path = f"projects/{{project}}/{collection.path}"
    api.on("GET", path, lists=collection.message)(lambda cloud, call: _listed(cloud, call, collection))
    api.on("POST", path, body=collection.message)(lambda cloud, call: _insert(cloud, call, collection))
    if collection.path.startswith("regions/"):
        name = collection.path.rpartition("/")[2]
        api.on("GET", f"projects/{{project}}/aggregated/{name}", lists=collection.message)(
            lambda cloud, call: _aggregated(cloud, call, collection)
        )
    api.on("GET", f"{path}/{{name}}")(lambda cloud, call: _show(cloud, call, collection))
    api.on(collection.changed_by, f"{path}/{{name}}", body=collection.message)(
        lambda cloud, call: _change(cloud, call, collection)
    )
    api.on("DELETE", f"{path}/{{name}}")(lambda cloud, call: _delete(cloud, call, collection))


def _show(cloud: Cloud, call: Call, collection: Collection) -> Doc:
    full = _full(call, collection)
    return _shown(cloud, full, find(cloud, collection.kind, full))


def _shown(cloud: Cloud, full: str, doc: Doc) -> Doc:
    """Return the resource, with the links of its subnetworks if it is a network."""
    if doc["kind"] != "compute#network":
        return doc
    links = auto_subnets.links(cloud, full)
    return {**doc, "subnetworks": links} if links else doc


def _parent(call: Call, collection: Collection) -> str:
    region = call.names.get("region")
    if region and region not in REGIONS:
        raise UNKNOWN_REGION.invalid(f"Invalid value for field 'region': '{region}'. Unknown region.")
    return f"projects/{call['project']}/{collection.path.format(**call.names)}"


def _full(call: Call, collection: Collection) -> str:
    return f"{_parent(call, collection)}/{call['name']}"


def scope_of(name: str) -> str:
    return "/".join(name.split("/")[: 4 if "/regions/" in name else 3])


def _listed(cloud: Cloud, call: Call, collection: Collection) -> Doc:
    parent = _parent(call, collection)
    found = cloud.state.all(collection.kind, f"{parent}/").items()
    return {"id": parent, "items": [_shown(cloud, full, doc) for full, doc in found]}


def _aggregated(cloud: Cloud, call: Call, collection: Collection) -> Doc:
    """Return the resources of each region, with a warning for a region that has none."""
    name = collection.path.rpartition("/")[2]
    items: Doc = {}
    for region in sorted(REGIONS):
        found = cloud.state.all(collection.kind, f"projects/{call['project']}/regions/{region}/{name}/")
        scope = f"regions/{region}"
        items[scope] = {name: list(found.values())} if found else paging.no_results(scope)
    return {"id": f"projects/{call['project']}/aggregated/{name}", "items": items}


def _insert(cloud: Cloud, call: Call, collection: Collection) -> Started:
    kind = collection.kind
    body = {field: value for field, value in call.body.items() if value is not None}
    name = body.get("name", "")
    if not NAME.fullmatch(name):
        raise GUESS.invalid(
            f"Invalid value for field 'resource.name': '{name}'. Must be a match of regex '{NAME.pattern}'"
        )
    full = f"{_parent(call, collection)}/{name}"
    if cloud.state.get(kind, full):
        raise COMPUTE_EXISTS.exists(f"The resource '{full}' already exists")
    if collection.in_network:
        body["network"] = _network(cloud, call, kind, body)
    _check(cloud, call, kind, full, body)
    made = compute_documents.made(cloud, kind, full, body)
    cloud.state.put(kind, full, made)
    if kind == "network":
        auto_subnets.add(cloud, full, made)
    return cloud.start(api, "insert", scope_of(full), full, kind=kind, **_about(made, call))


def _network(cloud: Cloud, call: Call, kind: str, body: Doc) -> str:
    """Return the link of the resource's network, from any spelling."""
    # The default network of firewall rules: https://cloud.google.com/compute/docs/reference/rest/v1/firewalls
    link = body.get("network") or ("global/networks/default" if kind == "firewall" else "")
    if not link:
        raise GUESS.refused(400, "Required field 'resource.network' not specified", reason="required")
    named = relative(link, call["project"])
    find_ready(cloud, "network", named)
    return f"{ROOT}/{named}"


def _change(cloud: Cloud, call: Call, collection: Collection) -> Started:
    full, kind = _full(call, collection), collection.kind
    old = find_ready(cloud, kind, full)
    if kind == "subnetwork":
        compute_documents.check_fingerprint(old, call.body)
    replace = call.request.method == "PUT"
    new = compute_documents.changed(kind, old, call.body, call["project"], replace=replace)
    _check(cloud, call, kind, full, new)
    if kind == "subnetwork":
        subnet_ranges.check_kept(cloud, full, old, new)
    after = compute_documents.filled_in(kind, new)
    verb = "update" if replace else "patch"
    return cloud.change(api, verb, scope_of(full), full, store=kind, after=after, kind=kind, **_about(old, call))


def _about(doc: Doc, call: Call) -> dict[str, str]:
    """Return the target's number and the caller, which operations report."""
    return {"id": doc["id"], "user": call.request.principal.rpartition(":")[2] or "owner@example.com"}


def _check(cloud: Cloud, call: Call, kind: str, full: str, wanted: Doc) -> None:
    if kind == "firewall":
        firewall_rules.check(firewall_rules.filled_in(wanted))
    if kind == "subnetwork":
        subnet_ranges.check(cloud, wanted, call["project"], besides=full)
    if kind == "router":
        network_rules.check_nats(cloud, full, wanted)


def _delete(cloud: Cloud, call: Call, collection: Collection) -> Started:
    full, kind = _full(call, collection), collection.kind
    found = find_ready(cloud, kind, full)
    if user := network_users.user_of(cloud, full, call["project"]):
        raise COMPUTE_IN_USE.refused(
            400,
            f"The {kind} resource '{full}' is already being used by '{user}'",
            reason="resourceInUseByAnotherResource",
        )
    if kind == "subnetwork" and auto_subnets.goes_with(cloud, full):
        raise GUESS.refused(
            400,
            "Invalid resource usage: 'Cannot delete auto subnetwork from an auto subnet mode network.'.",
            reason="invalidResourceUsage",
        )
    return cloud.start(api, "delete", scope_of(full), full, kind=kind, **_about(found, call))


@api.on_operation_end("insert", "patch", "update", "delete")
def _changed(cloud: Cloud, doc: Doc) -> None:
    if doc["fail"]:
        cloud.fail(doc)
    if (doc["type"] == "insert" and doc["fail"]) or (doc["type"] == "delete" and not doc["fail"]):
        if doc["about"]["kind"] == "network":
            auto_subnets.remove(cloud, doc["target"])
        cloud.state.delete(doc["about"]["kind"], doc["target"])
        cloud.state.delete("of_new_project", f"{doc['about']['kind']} {doc['target']}")
        policy.forget(cloud, doc["target"])


for _collection in COLLECTIONS:
    _register(_collection)
