"""Cloud TPU API v2: TPU VMs, which the API calls nodes. No capacity is a failure at once; preemption comes any time."""

from __future__ import annotations

import re
from functools import partial

from tpukit.sandbox.google import longrunning, stock_and_quota
from tpukit.sandbox.google.api import After, Call, Started, public
from tpukit.sandbox.google.cloud import Cloud
from tpukit.sandbox.google.refusal import Refused, invalid, not_ready
from tpukit.sandbox.google.state import Doc
from tpukit.sandbox.google.stock_and_quota import Holding
from tpukit.sandbox.google.tpu import LOCATION, V2, accelerator_config, api, check_quota, no_capacity, place, shape_of

VM = LOCATION + "/nodes/{node}"
POWER_OFF_SECONDS = 30.0
"""That programs have from the power button to the end. https://cloud.google.com/compute/docs/instances/preemptible"""
_EXTERNAL = "networkConfig.enableExternalIps"
_CHANGEABLE = {"description", "labels", "metadata", "tags", _EXTERNAL}


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
    if shape.hosts > 1 and any(disk.get("mode") != "READ_ONLY" for disk in node.get("dataDisks", [])):
        # https://cloud.google.com/tpu/docs/attach-durable-block-storage
        raise invalid("Disks of a TPU with several hosts must be attached in READ_ONLY mode.")
    made = {
        **node,
        "name": full,
        "id": str(10**18 + cloud.state.next()),
        "acceleratorType": shape.name,
        "acceleratorConfig": accelerator_config(shape),
        "state": "CREATING",
        "health": "HEALTHY",
        "apiVersion": "V2",
        "createTime": cloud.stamp(),
        "_numbers": _free_numbers(cloud, shape.hosts),
        "_holds": holding.doc(),
        "_hosts": shape.hosts,
        "_ready": None,
        **more,
    }
    cloud.state.put("vm", full, {**made, "networkEndpoints": _endpoints(cloud, made)})


def runs(vm: Doc, worker: int) -> bool:
    """Whether a host should be up."""
    return vm["state"] == "READY" and shutdown_of(vm, worker) is None


def shutdown_of(vm: Doc, worker: int) -> Doc | None:
    """The order to power a host off, with the seconds that programs have; of all hosts, or of some."""
    order: Doc | None = vm.get("_shutdown")
    return order if order and str(worker) in order.get("workers", [str(worker)]) else None


def boot(vm: Doc, worker: int) -> int:
    """How often a host was made to start again; another number than before is an order to."""
    return int(vm.get("_boots", {}).get(str(worker), 0))


def renumber(cloud: Cloud, network: str) -> None:
    """Gives all TPU VMs addresses of this network."""
    cloud.network = network
    with cloud.state.transaction():
        for full, vm in cloud.state.all("vm").items():
            cloud.state.put("vm", full, {**vm, "networkEndpoints": _endpoints(cloud, vm)})


def _free_numbers(cloud: Cloud, count: int) -> list[int]:
    """Of addresses: no two hosts of the cloud have the same."""
    taken = {number for vm in cloud.state.all("vm").values() for number in vm["_numbers"]}
    return [number for number in range(len(taken) + count) if number not in taken][:count]


def _endpoints(cloud: Cloud, vm: Doc) -> list[Doc]:
    """The upper half of the network has the external addresses, which a node has only if it asks for them."""
    external = vm.get("networkConfig", {}).get("enableExternalIps")
    endpoints: list[Doc] = []
    for number in vm["_numbers"]:
        block, place = divmod(number, 250)
        endpoint: Doc = {"ipAddress": f"{cloud.network}.{block}.{place + 2}", "port": 8470}
        if external:
            endpoint["accessConfig"] = {"externalIp": f"{cloud.network}.{block + 128}.{place + 2}"}
        endpoints.append(endpoint)
    return endpoints


@api.on("POST", LOCATION + "/nodes", body="Node")
def _create(cloud: Cloud, call: Call) -> Started:
    full = f"{place(call)}/nodes/{call.query.get('nodeId', '')}"
    holding = asked_for(call.body, call["location"])
    check_quota(cloud, holding, full)
    add(cloud, full, call.body, holding)
    return cloud.start(api, "CREATE_NODE", place(call), full)


@api.on_operation_end("CREATE_NODE", "START_NODE")
def _came(cloud: Cloud, operation: Doc) -> After | None:
    full = operation["target"]
    vm = cloud.state.get("vm", full)
    if vm is None:
        return None
    starting = operation["type"] == "START_NODE"
    refused = Refused(500, operation["fail"]) if operation["fail"] else None
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


def make_ready(cloud: Cloud, full: str) -> None:
    vm = find_vm(cloud, full)
    holds = {**vm["_holds"], "up": True}
    new = {**vm, "state": "READY", "_holds": holds, "_ready": cloud.clock.now(), "_shutdown": None}
    cloud.state.put("vm", full, new)


def remove(cloud: Cloud, full: str) -> None:
    """Takes a TPU VM away with its hosts and all that is on them."""
    vm = find_vm(cloud, full)
    for worker in range(vm["_hosts"]):
        cloud.state.delete("vm_guest", f"{vm['id']}/{worker}")
    cloud.state.delete("vm", full)


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
    fields = call.mask() if call.query.get("updateMask") else []
    if not fields or not set(fields) <= _CHANGEABLE:
        raise invalid(f"Only {', '.join(sorted(_CHANGEABLE))} can be changed, not {', '.join(fields) or 'nothing'}.")
    if vm["state"] != "READY":
        raise not_ready(f"Node {full} is {vm['state']}, not READY.")
    new = dict(vm)
    for field in fields:
        # A field of the mask is replaced: a map loses what the body does not name.
        if field == _EXTERNAL:
            wanted = bool(call.body.get("networkConfig", {}).get("enableExternalIps"))
            new["networkConfig"] = {**vm.get("networkConfig", {}), "enableExternalIps": wanted}
        elif call.body.get(field):
            new[field] = call.body[field]
        else:
            new.pop(field, None)
    new["networkEndpoints"] = _endpoints(cloud, new)
    return cloud.change(api, "UPDATE_NODE", place(call), full, store="vm", after=new)


@api.on("POST", VM + ":stop")
def _stop(cloud: Cloud, call: Call) -> Started:
    full = VM.format(**call.names)
    vm = find_vm(cloud, full)
    if vm["_hosts"] > 1:
        raise not_ready("Stopping is not supported for multi-host TPUs.")
    if vm["state"] != "READY":
        raise not_ready(f"Node {full} is {vm['state']}, not READY.")
    cloud.state.put("vm", full, {**vm, "state": "STOPPING", "_shutdown": {"grace": POWER_OFF_SECONDS}})
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
def _went(cloud: Cloud, operation: Doc) -> After | None:
    vm = cloud.state.get("vm", operation["target"])
    if vm is None:
        return None
    if operation["fail"]:
        cloud.fail(operation)
        cloud.state.put("vm", operation["target"], {**vm, "state": vm["_before"]})
        return None
    remove(cloud, operation["target"])
    return partial(cloud.hooks.on_vm_changed, operation["target"])


@api.on("POST", VM + ":getGuestAttributes", body="GetGuestAttributesRequest")
def _guest_attributes(cloud: Cloud, call: Call) -> Doc:
    """One element for each worker asked for, all without a number; `queryPath` is NAMESPACE/ or NAMESPACE/KEY."""
    vm = find_vm(cloud, VM.format(**call.names))
    asked = [one for one in call.body.get("workerIds", []) if one != ""]
    known = [str(worker) for worker in range(vm["_hosts"])]
    if unknown := [one for one in asked if one not in known]:
        raise invalid(f"Node {vm['name']} has no worker {', '.join(unknown)}.")
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


def _preempt_some(cloud: Cloud) -> None:
    for full, vm in cloud.state.all("vm").items():
        waited = cloud.clock.now() - (vm["_ready"] or 0)
        if vm["state"] == "READY" and cloud.faults.strike("preempt", full, once=vm["id"], waited=waited):
            preempt(cloud, full)


def preempt(cloud: Cloud, full: str) -> None:
    """Takes a TPU VM back. It stays, PREEMPTED, and counts against the quota until it is deleted."""
    vm = find_vm(cloud, full)
    holds = {**vm["_holds"], "up": False}
    shutdown = vm.get("_shutdown") or {"grace": POWER_OFF_SECONDS, "preempted": True}
    cloud.state.put("vm", full, {**vm, "state": "PREEMPTED", "_holds": holds, "_shutdown": shutdown})


api.ticks.append(_preempt_some)
