"""Cloud TPU API v2: methods of TPU VMs, which the API calls nodes. Without capacity they fail at once."""

from __future__ import annotations

from functools import partial

from tpubox.google.compute import stock_and_quota
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.tpu import networks as tpu_networks
from tpubox.google.tpu import node_fields as tpu_node_fields
from tpubox.google.tpu import node_marks as tpu_node_marks
from tpubox.google.tpu import queue_progress
from tpubox.google.tpu import versions as tpu_versions
from tpubox.google.tpu.nodes import POWER_OFF_SECONDS, VM, add, asked_for, find_vm, make_ready, remove
from tpubox.google.tpu.service import LOCATION, api, check_quota, no_capacity, place, respond, start
from tpubox.google.wire.api import After, Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.sources import EMULATOR, GUESS
from tpubox.google.wire.state import Doc

_EXTERNAL = "networkConfig.enableExternalIps"
_CHANGEABLE = {"description", "labels", "metadata", "tags", _EXTERNAL}


@api.on("POST", LOCATION + "/nodes", body="Node")
def _create(cloud: Cloud, call: Call) -> Started:
    full = f"{place(call)}/nodes/{call.query.get('nodeId', '')}"
    body = tpu_versions.sent(call)
    holding = asked_for(body, call["location"])
    tpu_node_fields.check(full, body, call["location"])
    check_quota(cloud, holding, full)
    add(cloud, full, body, holding, **({"apiVersion": "V2_ALPHA1"} if body.get("_alpha") else {}))
    return start(cloud, call, "CREATE_NODE", full)


@api.on_operation_end("CREATE_NODE", "START_NODE")
def _came(cloud: Cloud, operation: Doc) -> After | None:
    full = operation["target"]
    vm = cloud.state.get("vm", full)
    if vm is None:
        return None
    starting = operation["type"] == "START_NODE"
    refused = EMULATOR.refused(500, operation["fail"]) if operation["fail"] else None
    if refused is None and not starting:
        try:
            tpu_networks.check(cloud, full, vm)
        except Refused as error:
            refused = error
    if refused is None:
        try:
            stock_and_quota.find(cloud, Holding(**vm["_holds"]), full)
        except Refused:
            refused = no_capacity(vm["_holds"]["zone"])
    if refused is None:
        make_ready(cloud, full)
        _respond(cloud, operation)
        return partial(cloud.hooks.on_vm_changed, full)
    cloud.fail(operation, refused)
    if starting:
        cloud.state.put("vm", full, {**vm, "state": "STOPPED"})
    else:
        remove(cloud, full)
    return None


@api.on("GET", LOCATION + "/nodes")
def _listed(cloud: Cloud, call: Call) -> Doc:
    where = f"projects/{call['project']}/locations/" if call["location"] == "-" else f"{place(call)}/nodes/"
    return {"nodes": [_shown(call, doc) for doc in cloud.state.all("vm", where).values()]}


@api.on("GET", VM)
def _show(cloud: Cloud, call: Call) -> Doc:
    return _shown(call, find_vm(cloud, VM.format(**call.names)))


def _shown(call: Call, vm: Doc) -> Doc:
    return tpu_versions.shown("Node", vm, tpu_versions.of(call))


@api.on("PATCH", VM, body="Node")
def _patch(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    fields = call.mask() if call.query.get("updateMask") else []
    if not fields or not set(fields) <= _CHANGEABLE:
        raise GUESS.invalid(
            f"Only {', '.join(sorted(_CHANGEABLE))} can be changed, not {', '.join(fields) or 'nothing'}."
        )
    if vm["state"] != "READY":
        raise GUESS.not_ready(f"Node {full} is {vm['state']}, not READY.")
    new = dict(vm)
    for field in fields:
        # The mask replaces whole fields: a map loses the keys missing in the body.
        if field == _EXTERNAL:
            wanted = bool(call.body.get("networkConfig", {}).get("enableExternalIps"))
            first, *others = vm.get("networkConfigs") or [vm.get("networkConfig", {})]
            changed = {**first, "enableExternalIps": wanted}
            new.update({"networkConfigs": [changed, *others]} if "networkConfigs" in vm else {"networkConfig": changed})
        elif call.body.get(field):
            new[field] = call.body[field]
        else:
            new.pop(field, None)
    tpu_node_marks.check({field: new.get(field) for field in fields})
    new = tpu_node_fields.addressed(cloud, new)
    return cloud.change(api, "UPDATE_NODE", place(call), full, store="vm", after=new, version=tpu_versions.of(call))


@api.on("POST", VM + ":stop")
def _stop(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    if vm["_hosts"] > 1:
        raise GUESS.not_ready("Stopping is not supported for multi-host TPUs.")
    if vm["state"] != "READY":
        raise GUESS.not_ready(f"Node {full} is {vm['state']}, not READY.")
    cloud.state.put("vm", full, {**vm, "state": "STOPPING", "_shutdown": {"grace": POWER_OFF_SECONDS}})
    return start(cloud, call, "STOP_NODE", full)


@api.on("POST", VM + ":start")
def _start(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    if vm["state"] != "STOPPED":
        raise GUESS.not_ready(f"Node {full} is {vm['state']}, not STOPPED.")
    cloud.state.put("vm", full, {**vm, "state": "STARTING"})
    return start(cloud, call, "START_NODE", full)


@api.on_operation_end("STOP_NODE")
def _stopped(cloud: Cloud, operation: Doc) -> None:
    vm = cloud.state.get("vm", operation["target"])
    if vm is None:
        return
    if operation["fail"]:
        cloud.fail(operation)
    state = "READY" if operation["fail"] else "STOPPED"
    holds = {**vm["_holds"], "up": bool(operation["fail"])}
    stopped = {**vm, "state": state, "_holds": holds, "_shutdown": None if operation["fail"] else vm["_shutdown"]}
    cloud.state.put("vm", operation["target"], stopped)
    if not operation["fail"]:
        _respond(cloud, operation)


@api.on_operation_end("UPDATE_NODE")
def _updated(cloud: Cloud, operation: Doc) -> After | None:
    if operation["fail"]:
        cloud.fail(operation)
        return None
    _respond(cloud, operation)
    return partial(cloud.hooks.on_vm_changed, operation["target"])


def _respond(cloud: Cloud, operation: Doc) -> None:
    respond(cloud, operation, "Node", find_vm(cloud, operation["target"]))


@api.on("DELETE", VM)
def _delete(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    if vm["state"] == "DELETING":
        raise GUESS.not_ready(f"Node {full} is being deleted already.")
    cloud.state.put("vm", full, {**vm, "state": "DELETING", "_before": vm["state"]})
    return start(cloud, call, "DELETE_NODE", full, node=vm["id"])


@api.on_operation_end("DELETE_NODE")
def _went(cloud: Cloud, operation: Doc) -> After | None:
    vm = cloud.state.get("vm", operation["target"])
    if vm is None or vm["id"] != operation["about"]["node"]:
        return None  # its queued resource deleted it first, and may have recreated the name
    if operation["fail"]:
        cloud.fail(operation)
        cloud.state.put("vm", operation["target"], {**vm, "state": vm["_before"]})
        return None
    remove(cloud, operation["target"])
    if vm.get("queuedResource"):
        queue_progress.suspend_without_nodes(cloud, vm["queuedResource"])
    return partial(cloud.hooks.on_vm_changed, operation["target"])


@api.on("POST", VM + ":getGuestAttributes", body="GetGuestAttributesRequest")
def _guest_attributes(cloud: Cloud, call: Call) -> Doc:
    """Return one element per requested worker, by default all; `queryPath` is NAMESPACE/ or NAMESPACE/KEY."""
    vm = find_vm(cloud, VM.format(**call.names))
    asked = [one for one in call.body.get("workerIds", []) if one != ""]
    known = [str(worker) for worker in range(vm["_hosts"])]
    if unknown := [one for one in asked if one not in known]:
        raise GUESS.invalid(f"Node {vm['name']} has no worker {', '.join(unknown)}.")
    query = call.body.get("queryPath", "")
    answers = []
    for worker in asked or known:
        attributes = cloud.state.get("vm_guest", f"{vm['id']}/{worker}") or {}
        items = [
            {"namespace": name.partition("/")[0], "key": name.partition("/")[2], "value": value}
            for name, value in attributes.items()
            if name == query or name.startswith(f"{query.rstrip('/')}/" if query else "")
        ]
        answers.append({"queryPath": query, "queryValue": {"items": items}})
    return {"guestAttributes": answers}
