"""TPU VMs of the Cloud TPU API, which calls them nodes: creation, removal, and their hosts.

The documents hold the desired state; hosts follow them.
"""

from __future__ import annotations

from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.tpu import node_fields as tpu_node_fields
from tpubox.google.tpu.service import LOCATION, accelerator_config, api, shape_of
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS, TPU_EXISTS
from tpubox.google.wire.state import Doc

VM = LOCATION + "/nodes/{node}"
POWER_OFF_SECONDS = 30.0
"""Time that programs have between the power button and the end.

https://cloud.google.com/compute/docs/instances/preemptible
"""


def find_vm(cloud: Cloud, name: str) -> Doc:
    found = cloud.state.get("vm", name)
    if found is None:
        raise GUESS.not_found(f"Resource '{name}' was not found")
    return found


def asked_for(node: Doc, zone: str, *, spot: bool = False, reservation: str = "") -> Holding:
    """Return the chips that a valid TPU VM needs."""
    shape = shape_of(node, zone)
    scheduling = node.get("schedulingConfig") or {}
    spot = spot or bool(scheduling.get("spot") or scheduling.get("preemptible"))
    spot = spot or scheduling.get("provisioningModel") == "SPOT"
    reservation = reservation or scheduling.get("reservationName", "").rpartition("/")[2]
    return Holding(zone, shape.generation, shape.chips, spot, reservation)


def add(cloud: Cloud, full: str, node: Doc, holding: Holding, **more: object) -> None:
    """Store a TPU VM as CREATING."""
    if cloud.state.get("vm", full):
        raise TPU_EXISTS.exists(f"Resource '{full}' already exists", full)
    shape = shape_of(node, holding.zone)
    made = {
        **tpu_node_fields.filled_in(full, node),
        "name": full,
        "id": str(10**18 + cloud.state.next()),
        "acceleratorType": shape.name,
        "acceleratorConfig": accelerator_config(shape),
        "state": "CREATING",
        "health": "HEALTHY",
        "apiVersion": "V2",
        "createTime": cloud.stamp(),
        "_cidr": node.get("cidrBlock"),
        "_numbers": tpu_node_fields.free_numbers(cloud, shape.hosts),
        "_holds": holding.doc(),
        "_hosts": shape.hosts,
        "_ready": None,
        **more,
    }
    cloud.state.put("vm", full, tpu_node_fields.addressed(cloud, made))


def runs(vm: Doc, worker: int) -> bool:
    """Return True if a host should be up."""
    return vm["state"] == "READY" and shutdown_of(vm, worker) is None


def shutdown_of(vm: Doc, worker: int) -> Doc | None:
    """Return the order to power a host off, with the grace period; it may name all hosts or some."""
    order: Doc | None = vm.get("_shutdown")
    return order if order and str(worker) in order.get("workers", [str(worker)]) else None


def boot(vm: Doc, worker: int) -> int:
    """Return the boot count of a host; a changed count is an order to reboot."""
    return int(vm.get("_boots", {}).get(str(worker), 0))


def renumber(cloud: Cloud, network: str) -> None:
    """Assign addresses of this network to all TPU VMs."""
    cloud.network = network
    with cloud.state.transaction():
        for full, vm in cloud.state.all("vm").items():
            cloud.state.put("vm", full, tpu_node_fields.addressed(cloud, vm))


def make_ready(cloud: Cloud, full: str, **scheduling: object) -> None:
    """Mark a TPU VM as READY, and merge `scheduling` into its scheduling configuration."""
    vm = find_vm(cloud, full)
    holds = {**vm["_holds"], "up": True}
    new = {**vm, "state": "READY", "_holds": holds, "_ready": cloud.clock.now(), "_shutdown": None}
    if scheduling:
        new["schedulingConfig"] = {**vm.get("schedulingConfig", {}), **scheduling}
    cloud.state.put("vm", full, new)


def remove(cloud: Cloud, full: str) -> None:
    """Delete a TPU VM with its hosts and their data."""
    vm = find_vm(cloud, full)
    for worker in range(vm["_hosts"]):
        cloud.state.delete("vm_guest", f"{vm['id']}/{worker}")
    tpu_node_fields.give_back(cloud, vm["_numbers"])
    cloud.state.delete("vm", full)


def _preempt_some(cloud: Cloud) -> None:
    if not cloud.faults.any("preempt"):
        return
    for full, vm in cloud.state.all("vm").items():
        waited = cloud.clock.now() - (vm["_ready"] or 0)
        if vm["state"] == "READY" and cloud.faults.strike("preempt", full, once=vm["id"], waited=waited):
            preempt(cloud, full)


def preempt(cloud: Cloud, full: str) -> None:
    """Preempt a TPU VM. It stays PREEMPTED, and counts against the quota until it is deleted."""
    vm = find_vm(cloud, full)
    _power_off(cloud, vm, "PREEMPTED", vm.get("_shutdown") or {"grace": POWER_OFF_SECONDS, "preempted": True})
    if vm.get("queuedResource"):
        cloud.state.put("vm_preempted", full, {"queued": vm["queuedResource"]})


def terminate(cloud: Cloud, full: str) -> None:
    """Terminate a TPU VM whose run time is over.

    The state TERMINATED until deletion, and a grace period as for preemption, are guesses.
    """
    _power_off(cloud, find_vm(cloud, full), "TERMINATED", {"grace": POWER_OFF_SECONDS})


def _power_off(cloud: Cloud, vm: Doc, state: str, shutdown: Doc) -> None:
    holds = {**vm["_holds"], "up": False}
    cloud.state.put("vm", vm["name"], {**vm, "state": state, "_holds": holds, "_shutdown": shutdown})


api.ticks.append(_preempt_some)
