"""Cloud TPU API v2: queued resources: requests for TPU VMs that wait until there is capacity.

    CREATING → ACCEPTED → (WAITING_FOR_RESOURCES →) PROVISIONING → ACTIVE → SUSPENDING → SUSPENDED
                                     any of these → FAILED, DELETING

A request is SUSPENDED when one of its VMs was preempted. It does not come back by itself, and like a FAILED one it
counts against the quota until it is deleted or reset.
"""

from __future__ import annotations

import re
from datetime import datetime
from functools import partial

from tpukit.sandbox.google import longrunning, stock_and_quota, tpu_nodes
from tpukit.sandbox.google.api import After, Call, Started, public
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.refusal import CODES, Refused, invalid, not_ready
from tpukit.sandbox.google.state import Doc
from tpukit.sandbox.google.stock_and_quota import Holding
from tpukit.sandbox.google.tpu import LOCATION, V2, api, check_quota, place

QUEUED = LOCATION + "/queuedResources/{queued}"
WAIT_SECONDS = 1.0
"""Between two looks for capacity."""


@api.on("POST", LOCATION + "/queuedResources", body="QueuedResource")
def _create(cloud: Cloud, call: Call) -> Started:
    name = call.query.get("queuedResourceId", "")
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise invalid(f"Invalid queued resource id {name!r}.")
    full = f"{place(call)}/queuedResources/{name}"
    request = call.query.get("requestId", "")
    old = cloud.state.get("queued", full)
    if old and request and old["_request"] == request:
        return Started(old["_operation"])
    if old:
        raise Refused(409, f"Resource '{full}' already exists")
    nodes = _nodes(call)
    holding = _holding(call, nodes)
    check_quota(cloud, holding, full)
    made = {
        **call.body,
        "name": full,
        "createTime": cloud.stamp(),
        "_nodes": nodes,
        "_wants": holding.doc(),
        "_holds": holding.doc(),
        "_until": _until(call.body, cloud.clock.now()),
        "_request": request,
    }
    started = cloud.start(api, "CREATE_QUEUED_RESOURCE", place(call), full)
    _put(cloud, full, {**made, "_operation": started.id}, "CREATING", "USER")
    return started


def _nodes(call: Call) -> Doc:
    """The TPU VMs that are asked for, by full name."""
    found: Doc = {}
    for spec in call.body.get("tpu", {}).get("nodeSpec", []):
        parent = _parent(spec.get("parent") or place(call), call)
        several = spec.get("multisliceParams") or spec.get("multiNodeParams")
        if several:
            prefix = several.get("nodeIdPrefix") or call.query["queuedResourceId"]
            ids = [f"{prefix}-{number}" for number in range(int(several.get("nodeCount", 0)))]
        else:
            ids = [spec.get("nodeId", "")]
        found.update({f"{parent}/nodes/{each}": spec.get("node", {}) for each in ids})
    if not found:
        raise invalid("A queued resource must ask for at least one TPU node.")
    return found


def _parent(parent: str, call: Call) -> str:
    if parent.rpartition("/")[2] != call["location"]:
        raise invalid(f"Nodes must be in the location of the queued resource, not in {parent}.")
    return place(call)


def _holding(call: Call, nodes: Doc) -> Holding:
    spot = "spot" in call.body
    reservation = call.body.get("reservationName", "").rpartition("/")[2]
    each = [tpu_nodes.asked_for(node, call["location"], spot=spot, reservation=reservation) for node in nodes.values()]
    if len({(one.generation, one.chips, one.spot) for one in each}) > 1:
        raise invalid("All nodes of a queued resource must have the same accelerator and tier.")
    return Holding(each[0].zone, each[0].generation, sum(one.chips for one in each), each[0].spot, reservation)


def _until(body: Doc, now: float) -> float | None:
    policy = body.get("queueingPolicy", {})
    if "validUntilDuration" in policy:
        return now + float(policy["validUntilDuration"].removesuffix("s"))
    at = policy.get("validUntilTime") or policy.get("validInterval", {}).get("endTime")
    return datetime.fromisoformat(at).timestamp() if at else None


def _put(cloud: Cloud, full: str, doc: Doc, state: str, by: str = "SERVICE", **more: object) -> None:
    about = {"state": state, "stateInitiator": by, **more}
    cloud.state.put("queued", full, {**doc, "state": about})


@api.on_operation_end("CREATE_QUEUED_RESOURCE", "RESET_QUEUED_RESOURCE")
def _accepted(cloud: Cloud, operation: Doc) -> None:
    full = operation["target"]
    doc = cloud.state.get("queued", full)
    if doc is None:
        return
    if operation["fail"]:
        cloud.fail(operation)
        _fail(cloud, full, doc, operation["fail"], "INTERNAL")
        return
    _put(cloud, full, doc, "ACCEPTED")
    cloud.respond(operation, longrunning.message(f"{V2}.QueuedResource", public(doc)))
    cloud.later(api, "ADVANCE", full, cloud.settings.duration("ADVANCE"))


@api.on_operation_end("ADVANCE")
def _advance(cloud: Cloud, event: Doc) -> After | None:
    full = event["target"]
    doc = cloud.state.get("queued", full)
    if doc is None:
        return None
    state = doc["state"]["state"]
    if state in ("ACCEPTED", "WAITING_FOR_RESOURCES"):
        _seek_capacity(cloud, full, doc)
    elif state == "PROVISIONING":
        if fault := cloud.faults.strike("fail", f"PROVISION {full}"):
            _remove_vms(cloud, doc)
            _fail(cloud, full, doc, fault.message or "An internal error has occurred.", "INTERNAL")
            return None
        for name in doc["_nodes"]:
            tpu_nodes.make_ready(cloud, name)
        _put(cloud, full, doc, "ACTIVE")
        return partial(cloud.hooks.on_vm_changed, "")
    elif state == "SUSPENDING" and any(map(cloud.hooks.vm_has_hosts, doc["_nodes"])):
        cloud.later(api, "ADVANCE", full, WAIT_SECONDS)  # they have their time to shut down
    elif state == "SUSPENDING":
        _remove_vms(cloud, doc)
        _put(cloud, full, {**doc, "_holds": doc["_wants"]}, "SUSPENDED")
    return None


def _seek_capacity(cloud: Cloud, full: str, doc: Doc) -> None:
    if doc["_until"] is not None and cloud.clock.now() >= doc["_until"]:
        _fail(cloud, full, doc, "The request expired before it could be fulfilled.", "FAILED_PRECONDITION")
        return
    holding = Holding(**doc["_wants"])
    try:
        stock_and_quota.find(cloud, holding, full)
        for name, node in doc["_nodes"].items():
            chips = holding.chips // len(doc["_nodes"])
            share = Holding(holding.zone, holding.generation, chips, holding.spot, holding.reservation, up=True)
            tpu_nodes.add(cloud, name, node, share, queuedResource=full, **_slice(doc, name))
    except Refused as refused:
        if refused.code == 409:
            _fail(cloud, full, doc, refused.message, "ALREADY_EXISTS")
            return
        _put(cloud, full, doc, "WAITING_FOR_RESOURCES")
        cloud.later(api, "ADVANCE", full, WAIT_SECONDS)
        return
    _put(cloud, full, {**doc, "_holds": None}, "PROVISIONING")
    cloud.later(api, "ADVANCE", full, cloud.settings.duration("ADVANCE"))


def _slice(doc: Doc, name: str) -> Doc:
    """Hosts of several slices that one queued resource made are told of each other."""
    names = list(doc["_nodes"])
    if len(names) < 2:
        return {}
    return {"multisliceNode": True, "_slice": {"number": names.index(name), "count": len(names), "first": names[0]}}


def _fail(cloud: Cloud, full: str, doc: Doc, message: str, status: str) -> None:
    error = {"error": {"code": CODES[status], "message": message}}
    _put(cloud, full, {**doc, "_holds": doc["_wants"]}, "FAILED", failedData=error)


def _remove_vms(cloud: Cloud, doc: Doc) -> None:
    for name in doc["_nodes"]:
        vm = cloud.state.get("vm", name)
        if vm and vm.get("queuedResource") == doc["name"]:
            tpu_nodes.remove(cloud, name)


@api.on("GET", LOCATION + "/queuedResources")
def _listed(cloud: Cloud, call: Call) -> Doc:
    where = f"projects/{call['project']}/locations/" if call["location"] == "-" else f"{place(call)}/queuedResources/"
    return {"queuedResources": [public(doc) for doc in cloud.state.all("queued", where).values()]}


@api.on("GET", QUEUED)
def _show(cloud: Cloud, call: Call) -> Doc:
    return public(_find(cloud, call))


def _find(cloud: Cloud, call: Call) -> Doc:
    full = QUEUED.format(**call.names)
    found = cloud.state.get("queued", full)
    if found is None:
        raise Refused(404, f"Resource '{full}' was not found")
    return found


@api.on("POST", QUEUED + ":reset")
def _reset(cloud: Cloud, call: Call) -> Started:
    doc = _find(cloud, call)
    if doc["state"]["state"] not in ("ACTIVE", "SUSPENDED", "FAILED"):
        raise not_ready(f"{doc['name']} is {doc['state']['state']}: only ACTIVE, SUSPENDED and FAILED can be reset.")
    _remove_vms(cloud, doc)
    _put(cloud, doc["name"], {**doc, "_holds": doc["_wants"]}, "CREATING", "USER")
    return cloud.start(api, "RESET_QUEUED_RESOURCE", place(call), doc["name"])


@api.on("DELETE", QUEUED)
def _delete(cloud: Cloud, call: Call) -> Started:
    doc = _find(cloud, call)
    state = doc["state"]["state"]
    if state == "DELETING":
        raise not_ready(f"{doc['name']} is being deleted already.")
    if state in ("PROVISIONING", "ACTIVE", "SUSPENDING") and not call.flag("force"):
        raise not_ready(f"{doc['name']} is {state} and has nodes: delete these too, with force.")
    _put(cloud, doc["name"], doc, "DELETING", "USER")
    return cloud.start(api, "DELETE_QUEUED_RESOURCE", place(call), doc["name"])


@api.on_operation_end("DELETE_QUEUED_RESOURCE")
def _went(cloud: Cloud, operation: Doc) -> None:
    doc = cloud.state.get("queued", operation["target"])
    if doc is None:
        return
    if operation["fail"]:
        cloud.fail(operation)
        _fail(cloud, operation["target"], doc, operation["fail"], "INTERNAL")
        return
    _remove_vms(cloud, doc)
    cloud.state.delete("queued", operation["target"])


def _suspend_preempted(cloud: Cloud) -> None:
    for name, preempted in cloud.state.all("vm_preempted").items():
        vm = cloud.state.get("vm", name)
        if vm is None or vm["state"] != "PREEMPTED":
            cloud.state.delete("vm_preempted", name)
            continue
        doc = cloud.state.get("queued", preempted["queued"])
        if doc and doc["state"]["state"] == "ACTIVE":
            _put(cloud, doc["name"], doc, "SUSPENDING")
            cloud.later(api, "ADVANCE", doc["name"], cloud.settings.duration("ADVANCE"))


api.ticks.append(_suspend_preempted)
