"""Cloud TPU API v2: TPU VMs, which the API calls nodes. No capacity is a failure at once; preemption comes any time."""

from __future__ import annotations

import re

from tpukit.sandbox.google import capacity, longrunning
from tpukit.sandbox.google.api import Call, Started, merged, public
from tpukit.sandbox.google.capacity import Holding
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.refusal import Refused, invalid, not_ready
from tpukit.sandbox.google.state import Doc
from tpukit.sandbox.google.tpu import LOCATION, V2, api, check_quota, no_capacity, place, shape_of

VM = LOCATION + "/nodes/{node}"
_CHANGEABLE = {"description", "labels", "metadata", "tags", "networkConfig.enableExternalIps"}


def find_vm(cloud: Cloud, name: str) -> Doc:
    found = cloud.state.get("vm", name)
    if found is None:
        raise Refused(404, f"Resource '{name}' was not found")
    return found


def asked_for(node: Doc, zone: str, *, spot: bool = False, reservation: str = "") -> Holding:
    """The chips that a TPU VM takes, if it is one that could be."""
    shape = shape_of(node, zone)
    scheduling = node.get("schedulingConfig", {})
    spot = spot or bool(scheduling.get("spot") or scheduling.get("preemptible"))
    return Holding(zone, shape.generation, shape.chips, spot, reservation)


def add(cloud: Cloud, full: str, node: Doc, holding: Holding, **more: object) -> None:
    """Puts a TPU VM into the state, CREATING."""
    name = full.rpartition("/")[2]
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise invalid(f"Invalid node id {name!r}.")
    if cloud.state.get("vm", full):
        raise Refused(409, f"Resource '{full}' already exists")
    shape = shape_of(node, holding.zone)
    made = {
        **node,
        "name": full,
        "id": str(10**18 + cloud.state.next()),
        "acceleratorType": shape.name,
        "state": "CREATING",
        "health": "HEALTHY",
        "apiVersion": "V2",
        "createTime": cloud.stamp(),
        "networkEndpoints": [{"ipAddress": f"127.0.0.{1 + host % 250}", "port": 8470} for host in range(shape.hosts)],
        "_holds": holding.doc(),
        "_hosts": shape.hosts,
        "_ready": None,
        **more,
    }
    cloud.state.put("vm", full, made)


@api.on("POST", LOCATION + "/nodes", body="Node")
def _create(cloud: Cloud, call: Call) -> Started:
    full = f"{place(call)}/nodes/{call.query.get('nodeId', '')}"
    holding = asked_for(call.body, call["location"])
    check_quota(cloud, holding, full)
    add(cloud, full, call.body, holding)
    return cloud.start(api, "CREATE_NODE", place(call), full)


@api.on_operation_end("CREATE_NODE", "START_NODE")
def _came(cloud: Cloud, operation: Doc) -> None:
    full = operation["target"]
    vm = cloud.state.get("vm", full)
    if vm is None:
        return
    starting = operation["type"] == "START_NODE"
    refused = Refused(500, operation["fail"]) if operation["fail"] else None
    if refused is None:
        try:
            capacity.find(cloud, Holding(**vm["_holds"]), full)
        except Refused:
            refused = no_capacity(vm["_holds"]["zone"])
    if refused is None:
        make_ready(cloud, full)
        _respond(cloud, operation)
        return
    cloud.fail(operation, refused)
    if starting:
        cloud.state.put("vm", full, {**vm, "state": "STOPPED"})
    else:
        cloud.state.delete("vm", full)


def make_ready(cloud: Cloud, full: str) -> None:
    vm = find_vm(cloud, full)
    holds = {**vm["_holds"], "up": True}
    cloud.state.put("vm", full, {**vm, "state": "READY", "_holds": holds, "_ready": cloud.clock.now()})


@api.on("GET", LOCATION + "/nodes")
def _listed(cloud: Cloud, call: Call) -> Doc:
    where = f"projects/{call['project']}/locations/" if call["location"] == "-" else f"{place(call)}/nodes/"
    return {"nodes": [public(doc) for doc in cloud.state.all("vm", where).values()]}


@api.on("GET", VM)
def _show(cloud: Cloud, call: Call) -> Doc:
    return public(find_vm(cloud, VM.format(**call.names)))


@api.on("PATCH", VM, body="Node")
def _patch(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    fields = [field for field in call.query.get("updateMask", "").split(",") if field]
    if not fields or not set(fields) <= _CHANGEABLE:
        raise invalid(f"Only {', '.join(sorted(_CHANGEABLE))} can be changed, not {', '.join(fields) or 'nothing'}.")
    new = merged(vm, {field: call.body.get(field) for field in fields if "." not in field})
    cloud.state.put("vm", full, new)
    return cloud.start(api, "UPDATE_NODE", place(call), full)


@api.on("POST", VM + ":stop")
def _stop(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    if vm["_hosts"] > 1:
        raise not_ready("Stopping is not supported for multi-host TPUs.")
    if vm["state"] != "READY":
        raise not_ready(f"Node {full} is {vm['state']}, not READY.")
    cloud.state.put("vm", full, {**vm, "state": "STOPPING"})
    return cloud.start(api, "STOP_NODE", place(call), full)


@api.on("POST", VM + ":start")
def _start(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    if vm["state"] != "STOPPED":
        raise not_ready(f"Node {full} is {vm['state']}, not STOPPED.")
    cloud.state.put("vm", full, {**vm, "state": "STARTING"})
    return cloud.start(api, "START_NODE", place(call), full)


@api.on_operation_end("STOP_NODE")
def _stopped(cloud: Cloud, operation: Doc) -> None:
    vm = cloud.state.get("vm", operation["target"])
    if vm is None:
        return
    if operation["fail"]:
        cloud.fail(operation)
    state = "READY" if operation["fail"] else "STOPPED"
    holds = {**vm["_holds"], "up": bool(operation["fail"])}
    cloud.state.put("vm", operation["target"], {**vm, "state": state, "_holds": holds})
    if not operation["fail"]:
        _respond(cloud, operation)


@api.on_operation_end("UPDATE_NODE")
def _updated(cloud: Cloud, operation: Doc) -> None:
    _respond(cloud, operation)


def _respond(cloud: Cloud, operation: Doc) -> None:
    vm = find_vm(cloud, operation["target"])
    cloud.respond(operation, longrunning.message(f"{V2}.Node", public(vm)))


@api.on("DELETE", VM)
def _delete(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    if vm["state"] == "DELETING":
        raise not_ready(f"Node {full} is being deleted already.")
    if vm.get("queuedResource"):
        raise not_ready(f"Node {full} belongs to {vm['queuedResource']}: delete that, with force.")
    cloud.state.put("vm", full, {**vm, "state": "DELETING", "_before": vm["state"]})
    return cloud.start(api, "DELETE_NODE", place(call), full)


@api.on_operation_end("DELETE_NODE")
def _went(cloud: Cloud, operation: Doc) -> None:
    vm = cloud.state.get("vm", operation["target"])
    if vm is None:
        return
    if operation["fail"]:
        cloud.fail(operation)
        cloud.state.put("vm", operation["target"], {**vm, "state": vm["_before"]})
    else:
        cloud.state.delete("vm", operation["target"])


@api.on("POST", VM + ":getGuestAttributes")
def _guest_attributes(cloud: Cloud, call: Call) -> Doc:
    vm = find_vm(cloud, VM.format(**call.names))
    return {"guestAttributes": [{"queryPath": "", "queryValue": {"items": []}} for _ in range(vm["_hosts"])]}


def _preempt_some(cloud: Cloud) -> None:
    for full, vm in cloud.state.all("vm").items():
        waited = cloud.clock.now() - (vm["_ready"] or 0)
        if vm["state"] == "READY" and cloud.faults.strike("preempt", full, once=vm["id"], waited=waited):
            preempt(cloud, full)


def preempt(cloud: Cloud, full: str) -> None:
    """Takes a TPU VM back. It stays, PREEMPTED, and counts against the quota until it is deleted."""
    vm = find_vm(cloud, full)
    holds = {**vm["_holds"], "up": False}
    cloud.state.put("vm", full, {**vm, "state": "PREEMPTED", "_holds": holds})


api.ticks.append(_preempt_some)
