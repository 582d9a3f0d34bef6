"""Cloud TPU API v2alpha1: maintenance that users query and trigger, for TPU VMs and those of queued resources.

v2 has none of these methods. https://cloud.google.com/tpu/docs/maintenance-events
"""

from __future__ import annotations

from tpubox.google.tpu import queue_progress, vm_faults
from tpubox.google.tpu import versions as tpu_versions
from tpubox.google.tpu.nodes import VM, find_vm
from tpubox.google.tpu.queued_resources import QUEUED, find_queued
from tpubox.google.tpu.service import api, respond, start
from tpubox.google.wire.api import Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc


@api.on("POST", VM + ":simulateMaintenanceEvent", body="SimulateMaintenanceEventRequest")
def _simulate(cloud: Cloud, call: Call) -> Started:
    """Simulate maintenance of the first named worker only, or of worker 0 if none is named."""
    vm = _ready_vm(cloud, VM.format(**call.names))
    known = [str(worker) for worker in range(vm["_hosts"])]
    asked = call.body.get("workerIds") or ["0"]
    if unknown := [one for one in asked if one not in known]:
        raise GUESS.invalid(f"Node {vm['name']} has no worker {', '.join(unknown)}.")
    return start(cloud, call, "SIMULATE_MAINTENANCE_EVENT", vm["name"], workers=asked[:1])


@api.on("POST", VM + ":performMaintenance", body="PerformMaintenanceRequest")
def _perform(cloud: Cloud, call: Call) -> Started:
    vm = _announced_vm(cloud, VM.format(**call.names))
    return start(cloud, call, "PERFORM_MAINTENANCE", vm["name"])


@api.on_operation_end("SIMULATE_MAINTENANCE_EVENT", "PERFORM_MAINTENANCE")
def _performed(cloud: Cloud, operation: Doc) -> None:
    vm = cloud.state.get("vm", operation["target"])
    if operation["fail"] or vm is None:
        cloud.fail(operation, None if operation["fail"] else GUESS.not_found(f"{operation['target']} is gone."))
        return
    if operation["type"] == "SIMULATE_MAINTENANCE_EVENT":
        vm_faults.maintain(cloud, vm, operation["about"]["workers"])
    else:
        cloud.later(api, "MAINTENANCE_BEGINS", vm["name"], 0.0)
    respond(cloud, operation, "Node", find_vm(cloud, operation["target"]))


@api.on("GET", QUEUED + ":getMaintenanceInfo")
def _info(cloud: Cloud, call: Call) -> Doc:
    """Return the upcoming maintenance of the nodes that have any."""
    tpu_versions.need_alpha(call)
    doc = find_queued(cloud, call)
    vms = [vm for vm in queue_progress.vms(cloud, doc).values() if vm.get("upcomingMaintenance")]
    entries = [
        {
            "nodeName": vm["name"].rpartition("/")[2],
            "nodeUid": vm["id"],
            "upcomingMaintenance": vm["upcomingMaintenance"],
        }
        for vm in vms
    ]
    return {"nodeUpcomingMaintenances": entries} if entries else {}


@api.on("POST", QUEUED + ":performMaintenanceQueuedResource", body="PerformMaintenanceQueuedResourceRequest")
def _perform_queued(cloud: Cloud, call: Call) -> Started:
    """Perform the maintenance of all named nodes, or of none.

    Accepting full names, and refusing a request without names, are guesses.
    """
    doc = find_queued(cloud, call)
    if doc["state"]["state"] != "ACTIVE":
        raise GUESS.not_ready(f"{doc['name']} is {doc['state']['state']}, not ACTIVE.")
    known = {alias: name for name in queue_progress.vms(cloud, doc) for alias in (name, name.rpartition("/")[2])}
    names = call.body.get("nodeNames") or []
    if not names:
        raise GUESS.invalid("At least one node name is required.")
    if unknown := [name for name in names if name not in known]:
        raise GUESS.invalid(f"{doc['name']} has no node {', '.join(unknown)}.")
    nodes = [_announced_vm(cloud, full)["name"] for full in dict.fromkeys(known[name] for name in names)]
    return start(cloud, call, "PERFORM_MAINTENANCE_QUEUED_RESOURCE", doc["name"], nodes=nodes)


@api.on_operation_end("PERFORM_MAINTENANCE_QUEUED_RESOURCE")
def _performed_queued(cloud: Cloud, operation: Doc) -> None:
    doc = cloud.state.get("queued", operation["target"])
    if operation["fail"] or doc is None:
        cloud.fail(operation, None if operation["fail"] else GUESS.not_found(f"{operation['target']} is gone."))
        return
    for name in operation["about"]["nodes"]:
        cloud.later(api, "MAINTENANCE_BEGINS", name, 0.0)
    respond(cloud, operation, "QueuedResource", doc)


def _ready_vm(cloud: Cloud, full: str) -> Doc:
    vm = find_vm(cloud, full)
    if vm["state"] != "READY":
        raise GUESS.not_ready(f"Node {full} is {vm['state']}, not READY.")
    return vm


def _announced_vm(cloud: Cloud, full: str) -> Doc:
    """Return a TPU VM with upcoming maintenance."""
    vm = _ready_vm(cloud, full)
    if (vm.get("upcomingMaintenance") or {}).get("maintenanceStatus") != "PENDING":
        raise GUESS.not_ready(f"Node {full} has no upcoming maintenance.")
    return vm
