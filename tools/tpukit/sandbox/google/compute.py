"""Compute Engine: networks, what lies in them, and workload policies.

The collections of this API behave alike, so what differs between them is a table.
"""

from __future__ import annotations

import ipaddress
import re
import zlib
from dataclasses import dataclass

from tpukit.sandbox.google import held_permissions, network_rules, paging, policy, stock_and_quota
from tpukit.sandbox.google.api import Api, Call, Started, merged
from tpukit.sandbox.google.cloud import Cloud, stamp
from tpukit.sandbox.google.refusal import Refused
from tpukit.sandbox.google.sources import COMPUTE_EXISTS, COMPUTE_IN_USE, COMPUTE_NOT_FOUND, COMPUTE_RANGES, GUESS
from tpukit.sandbox.google.state import Doc

ROOT = "https://www.googleapis.com/compute/v1"
NAME = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Collection:
    """One kind of resource: where it lies, the message it is, and which of its fields name others of what kind."""

    path: str  # after the project
    kind: str
    message: str
    refers: tuple[tuple[str, str], ...] = ()
    changed_by: str = "PATCH"


COLLECTIONS = (
    Collection("global/networks", "network", "Network"),
    Collection("global/firewalls", "firewall", "Firewall", (("network", "network"),), "PATCH PUT"),
    Collection("regions/{region}/subnetworks", "subnetwork", "Subnetwork", (("network", "network"),)),
    Collection("regions/{region}/routers", "router", "Router", (("network", "network"),), "PATCH PUT"),
    Collection("regions/{region}/resourcePolicies", "resourcePolicy", "ResourcePolicy"),
)


def operation(doc: Doc) -> Doc:
    """An operation as Compute Engine writes it; regional ones must name their region to be polled there."""
    body = {
        "kind": "compute#operation",
        "id": str(zlib.crc32(doc["id"].encode())),
        "name": doc["id"],
        "operationType": doc["type"],
        "targetLink": f"{ROOT}/{doc['target']}",
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
    # The provider sends some of its own to it, so Google must pass over them.
    own_front=True,
    operation=operation,
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
    api.on("GET", f"{path}/{{name}}")(lambda cloud, call: find(cloud, collection.kind, _full(call, collection)))
    api.on(collection.changed_by, f"{path}/{{name}}", body=collection.message)(
        lambda cloud, call: _patch(cloud, call, collection)
    )
    api.on("DELETE", f"{path}/{{name}}")(lambda cloud, call: _delete(cloud, call, collection))


def not_found(name: str) -> Refused:
    return COMPUTE_NOT_FOUND.not_found(f"The resource '{name}' was not found")


def find(cloud: Cloud, kind: str, name: str) -> Doc:
    doc = cloud.state.get(kind, name)
    if doc is None:
        raise not_found(name)
    return doc


def _parent(call: Call, collection: Collection) -> str:
    return f"projects/{call['project']}/{collection.path.format(**call.names)}"


def _full(call: Call, collection: Collection) -> str:
    return f"{_parent(call, collection)}/{call['name']}"


def _scope(name: str) -> str:
    return "/".join(name.split("/")[: 4 if "/regions/" in name else 3])


def _listed(cloud: Cloud, call: Call, collection: Collection) -> Doc:
    parent = _parent(call, collection)
    return {"id": parent, "items": list(cloud.state.all(collection.kind, f"{parent}/").values())}


def _aggregated(cloud: Cloud, call: Call, collection: Collection) -> Doc:
    """What there is in each region, and a warning where there is none."""
    name = collection.path.rpartition("/")[2]
    items: Doc = {}
    for region in stock_and_quota.regions():
        found = cloud.state.all(collection.kind, f"projects/{call['project']}/regions/{region}/{name}/")
        scope = f"regions/{region}"
        items[scope] = {name: list(found.values())} if found else paging.no_results(scope)
    return {"id": f"projects/{call['project']}/aggregated/{name}", "items": items}


def _insert(cloud: Cloud, call: Call, collection: Collection) -> Started:
    body = call.body
    name = body.get("name", "")
    if not NAME.fullmatch(name):
        raise GUESS.invalid(
            f"Invalid value for field 'resource.name': '{name}'. Must be a match of regex '{NAME.pattern}'"
        )
    full = f"{_parent(call, collection)}/{name}"
    if cloud.state.get(collection.kind, full):
        raise COMPUTE_EXISTS.exists(f"The resource '{full}' already exists")
    for field, kind in collection.refers:
        named = relative(body.get(field, ""), call["project"])
        find(cloud, kind, named)
        body = {**body, field: f"{ROOT}/{named}"}  # whichever way it was written
    _check(cloud, call, collection, full, body)
    made = {
        **{key: value for key, value in body.items() if value is not None},
        "kind": f"compute#{collection.kind}",
        "id": str(10**18 + cloud.state.next()),
        "creationTimestamp": cloud.stamp(),
        "selfLink": f"{ROOT}/{full}",
    }
    if collection.kind == "subnetwork":
        made["fingerprint"] = _fingerprint(made)
    if "region" in call.names:
        made["region"] = f"{ROOT}/projects/{call['project']}/regions/{call['region']}"
    cloud.state.put(collection.kind, full, made)
    return cloud.start(api, "insert", _scope(full), full, kind=collection.kind)


def _patch(cloud: Cloud, call: Call, collection: Collection) -> Started:
    full = _full(call, collection)
    old = find(cloud, collection.kind, full)
    # Lists are replaced, not joined: taking the last NAT off a router is a patch with an empty list.
    new = merged(old, call.body)
    _check(cloud, call, collection, full, new)
    if collection.kind == "subnetwork":
        if call.body.get("fingerprint", old["fingerprint"]) != old["fingerprint"]:
            raise GUESS.refused(412, "Invalid fingerprint.", reason="conditionNotMet")
        new["fingerprint"] = _fingerprint(new)
    return cloud.change(api, "patch", _scope(full), full, store=collection.kind, after=new, kind=collection.kind)


def _check(cloud: Cloud, call: Call, collection: Collection, full: str, wanted: Doc) -> None:
    if collection.kind == "subnetwork":
        _check_ranges(cloud, wanted, call["project"], besides=full)
    if collection.kind == "router":
        network_rules.check_nats(cloud, full, wanted)


def _delete(cloud: Cloud, call: Call, collection: Collection) -> Started:
    full = _full(call, collection)
    find(cloud, collection.kind, full)
    if user := _user(cloud, full, call["project"]):
        raise COMPUTE_IN_USE.refused(
            400,
            f"The {collection.kind} resource '{full}' is already being used by '{user}'",
            reason="resourceInUseByAnotherResource",
        )
    return cloud.start(api, "delete", _scope(full), full, kind=collection.kind)


@api.on_operation_end("insert", "patch", "delete")
def _changed(cloud: Cloud, doc: Doc) -> None:
    if doc["fail"]:
        cloud.fail(doc)
    if (doc["type"] == "insert" and doc["fail"]) or (doc["type"] == "delete" and not doc["fail"]):
        cloud.state.delete(doc["about"]["kind"], doc["target"])
        policy.forget(cloud, doc["target"])


def _user(cloud: Cloud, full: str, project: str) -> str | None:
    """The name of something that would break if this went away."""
    for other in COLLECTIONS:
        for name, doc in cloud.state.all(other.kind, f"projects/{project}/").items():
            if any(relative(doc.get(field, ""), project) == full for field, _ in other.refers):
                return name
    # A network may be shared: clusters of other projects hold it too.
    for name, doc in cloud.state.all("cluster").items():
        if full in (doc["networkConfig"]["network"], doc["networkConfig"]["subnetwork"]):
            return name
    for name, doc in cloud.state.all("pool", f"projects/{project}/").items():
        policy = doc.get("placementPolicy", {}).get("policyName")
        if policy and full.endswith(f"/resourcePolicies/{policy}"):
            return name
    return None


def relative(link: str, project: str) -> str:
    """A resource's name without host, from any of the ways in which one may write it."""
    text = re.sub(r"^https?://.*?/(?=projects/)", "", link)
    return text if text.startswith("projects/") or not text else f"projects/{project}/{text}"


def _check_ranges(cloud: Cloud, subnet: Doc, project: str, besides: str = "") -> None:
    """No two ranges of a network may share addresses."""
    network = relative(subnet.get("network", ""), project)
    taken = [
        (name, text)
        for name, doc in cloud.state.all("subnetwork", f"projects/{project}/").items()
        if relative(doc["network"], project) == network and name != besides
        for text in _ranges(doc)
    ]
    mine = _ranges(subnet)
    for index, text in enumerate(mine):
        try:
            range_ = ipaddress.ip_network(text)
        except ValueError as error:
            raise GUESS.invalid(f"Invalid value for field 'resource.ipCidrRange': '{text}'. {error}") from error
        for name, other in [*taken, *((besides, each) for each in mine[:index])]:
            if range_.overlaps(ipaddress.ip_network(other)):
                raise _overlap(index, text, name)


def _overlap(index: int, text: str, taken_by: str) -> Refused:
    """Of the range of that number of a subnetwork: its own, then the secondary ones."""
    field = f"secondaryIpRanges[{index - 1}].ipCidrRange" if index else "ipCidrRange"
    *_, region, _, name = taken_by.split("/")
    return COMPUTE_RANGES.invalid(
        f"Invalid value for field 'resource.{field}': '{text}'. Invalid IPCidrRange: {text} conflicts with existing "
        f"subnetwork '{name}' in region '{region}'."
    )


def _ranges(subnet: Doc) -> list[str]:
    return [subnet.get("ipCidrRange", ""), *(each["ipCidrRange"] for each in subnet.get("secondaryIpRanges", ()))]


def _fingerprint(body: Doc) -> str:
    counted = sorted((key, value) for key, value in body.items() if key != "fingerprint")
    return f"{zlib.crc32(repr(counted).encode()):08x}"


for _collection in COLLECTIONS:
    _register(_collection)


_SUBNET = "projects/{project}/regions/{region}/subnetworks/{name}"


@api.on("GET", _SUBNET + "/getIamPolicy")
def _get_policy(cloud: Cloud, call: Call) -> Doc:
    full = _SUBNET.format(**call.names)
    find(cloud, "subnetwork", full)
    return policy.get(cloud, full)


@api.on("POST", _SUBNET + "/setIamPolicy", body="RegionSetPolicyRequest")
def _set_policy(cloud: Cloud, call: Call) -> Doc:
    full = _SUBNET.format(**call.names)
    find(cloud, "subnetwork", full)
    return policy.put(cloud, full, call.body.get("policy", {}))


held_permissions.register(api, _SUBNET, "subnetwork", body="TestPermissionsRequest", separator="/")
