"""Faults of TPU VMs and their hosts: preemption, repair, maintenance, bad health, a lost host.

Each has the effect that it has at Google, and no other. The documents hold the desired state; hosts follow them.
https://cloud.google.com/tpu/docs/maintenance-events and https://cloud.google.com/tpu/docs/preemptible
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from tpubox.google.tpu.nodes import POWER_OFF_SECONDS, find_vm, preempt
from tpubox.google.tpu.service import api
from tpubox.google.wire.api import After, public
from tpubox.google.wire.cloud import Cloud, stamp
from tpubox.google.wire.faults import VM_KINDS
from tpubox.google.wire.state import Doc
from tpukit.core.errors import Invalid, NotFound

HEALTH = ("UNHEALTHY_TENSORFLOW", "UNHEALTHY_MAINTENANCE", "TIMEOUT")
SYMPTOMS = (
    *("LOW_MEMORY", "OUT_OF_MEMORY", "EXECUTE_TIMED_OUT", "MESH_BUILD_FAIL", "HBM_OUT_OF_MEMORY", "PROJECT_ABUSE"),
)
_MAINTENANCE_SECONDS = 60.0  # a guess; Google promises no length
_STANDING = ("READY", "REPAIRING")
"""States of a TPU VM that has hosts, or will have them again without a user's action."""
_TO_STANDING = ("preempt", "repair", "maintenance", "crash")
_UNDER_MAINTENANCE = "The node is under maintenance."  # the text is a guess, like that of a repair


def strike(cloud: Cloud, action: str, node: str, worker: int | None = None, **words: Any) -> Doc:
    """Apply `action` to a TPU VM, named in full or by its last part, or to one of its hosts."""
    act = _ACTIONS.get(action)
    if act is None:
        raise Invalid(f"nothing like {action!r} happens to TPU VMs", hint=f"write one of {', '.join(_ACTIONS)}")
    with cloud.state.transaction():
        full = _full_name(cloud, node)
        vm = find_vm(cloud, full)
        if worker is not None and not 0 <= worker < vm["_hosts"]:
            raise Invalid(f"{node} has no worker {worker}", hint=f"it has {vm['_hosts']}, from 0")
        if action in _TO_STANDING and vm["state"] not in _STANDING:
            hint = f"{action} happens to those that are {' or '.join(_STANDING)}"
            raise Invalid(f"{node} is {vm['state']}: it has no hosts", hint=hint)
        workers = [str(number) for number in range(vm["_hosts"]) if worker in (None, number)]
        try:
            act(cloud, vm, workers, **words)
        except TypeError as error:
            raise Invalid(f"{action} cannot be told all of {', '.join(words)}") from error
    cloud.hooks.on_vm_changed(full)
    return public(find_vm(cloud, full)) if cloud.state.get("vm", full) else {}


def _full_name(cloud: Cloud, node: str) -> str:
    names = [name for name in cloud.state.all("vm") if name == node or name.rpartition("/")[2] == node]
    if len(names) != 1:
        raise NotFound(f"there are {len(names)} TPU VMs {node}", hint="write projects/P/locations/ZONE/nodes/NAME")
    return names[0]


def _preempt(
    cloud: Cloud, vm: Doc, workers: list[str], grace: float = POWER_OFF_SECONDS, after: float | None = None
) -> None:
    """Preempt all hosts. The API reports it after `after` seconds, by default when the hosts are gone."""
    _put(cloud, vm, _shutdown={"grace": min(grace, POWER_OFF_SECONDS), "preempted": True, "by_hosts": after is None})
    _later(cloud, "PREEMPT", vm, grace if after is None else after)


@api.on_operation_end("PREEMPT")
def _preempted(cloud: Cloud, event: Doc) -> None:
    vm = _meant(cloud, event)
    if vm is None or vm["state"] not in _STANDING:
        return
    if (vm.get("_shutdown") or {}).get("by_hosts") and cloud.hooks.vm_has_hosts(event["target"]):
        _later(cloud, "PREEMPT", vm, 0.2)
        return
    preempt(cloud, event["target"])


def hosts_went(cloud: Cloud, full: str) -> None:
    """Record that the last host of a TPU VM has shut down."""
    with cloud.state.transaction():
        vm = cloud.state.get("vm", full)
        if vm and vm["state"] in _STANDING and (vm.get("_shutdown") or {}).get("by_hosts"):
            preempt(cloud, full)


def _repair(cloud: Cloud, vm: Doc, workers: list[str], seconds: float = 5.0) -> None:
    _put(
        cloud,
        vm,
        state="REPAIRING",
        healthDescription="The node is being repaired.",
        _boots=_again(vm, range(vm["_hosts"])),
    )
    _later(cloud, "REPAIRED", vm, seconds)


@api.on_operation_end("REPAIRED")
def _repaired(cloud: Cloud, event: Doc) -> After | None:
    vm = _meant(cloud, event)
    if vm is None or vm["state"] != "REPAIRING":
        return None
    _put(cloud, vm, state="READY", healthDescription=None)
    return lambda: cloud.hooks.on_vm_changed(event["target"])


def maintain(
    cloud: Cloud,
    vm: Doc,
    workers: list[str],
    notice: float = 0.0,
    seconds: float = _MAINTENANCE_SECONDS,
    grace: float = POWER_OFF_SECONDS,
) -> None:
    """Announce maintenance. Announced maintenance may be triggered early; that this holds for all of it is a guess."""
    now = cloud.clock.now()
    upcoming = {
        "type": "SCHEDULED" if notice else "UNSCHEDULED",
        "canReschedule": notice > 0,
        "maintenanceStatus": "PENDING",
        "windowStartTime": stamp(now + notice),
        "windowEndTime": stamp(now + notice + seconds),
        "latestWindowStartTime": stamp(now + notice),
    }
    plan = {"workers": workers, "seconds": seconds, "grace": min(grace, POWER_OFF_SECONDS)}
    health = {"health": "UNHEALTHY_MAINTENANCE", "healthDescription": _UNDER_MAINTENANCE}
    _put(cloud, vm, **health, upcomingMaintenance=upcoming, _maintenance=plan)
    _later(cloud, "MAINTENANCE_BEGINS", vm, notice)


@api.on_operation_end("MAINTENANCE_BEGINS")
def _begins(cloud: Cloud, event: Doc) -> After | None:
    """Begin the maintenance, also of a VM under repair, whose hosts stay away until both are over.

    VMs in other states have no hosts to shut down.
    """
    vm = _meant(cloud, event)
    upcoming = (vm or {}).get("upcomingMaintenance") or {}
    if vm is None or upcoming.get("maintenanceStatus") != "PENDING":
        return None
    plan = vm["_maintenance"]
    own = {"grace": plan["grace"], "workers": plan["workers"]}
    ordered = vm.get("_shutdown") or own
    shutdown = own if vm["state"] in _STANDING and "workers" in ordered else vm.get("_shutdown")
    _put(cloud, vm, upcomingMaintenance={**upcoming, "maintenanceStatus": "ONGOING"}, _shutdown=shutdown)
    _later(cloud, "MAINTENANCE_ENDS", vm, plan["seconds"])
    return lambda: cloud.hooks.on_vm_changed(event["target"])


@api.on_operation_end("MAINTENANCE_ENDS")
def _maintenance_over(cloud: Cloud, event: Doc) -> After | None:
    """End the maintenance in every state, to not keep the hosts away forever. Other shutdown orders stay."""
    vm = _meant(cloud, event)
    if vm is None or not vm.get("upcomingMaintenance"):
        return None
    over: Doc = {"health": "HEALTHY", "healthDescription": None, "upcomingMaintenance": None, "_maintenance": None}
    if "workers" in (vm.get("_shutdown") or {}):
        over |= {"_shutdown": None, "_boots": _again(vm, map(int, vm["_maintenance"]["workers"]))}
    _put(cloud, vm, **over)
    return lambda: cloud.hooks.on_vm_changed(event["target"])


def _unhealthy(
    cloud: Cloud, vm: Doc, workers: list[str], health: str = HEALTH[0], symptom: str = "", details: str = ""
) -> None:
    if health not in HEALTH or symptom not in ("", *SYMPTOMS):
        raise Invalid(f"{health} {symptom} is no health", hint=f"write one of {', '.join((*HEALTH, *SYMPTOMS))}")
    symptoms = [
        {"symptomType": symptom, "workerId": worker, "details": details, "createTime": cloud.stamp()}
        for worker in workers
        if symptom
    ]
    _put(cloud, vm, health=health, healthDescription=details, symptoms=[*vm.get("symptoms", []), *symptoms])


def _crash(cloud: Cloud, vm: Doc, workers: list[str]) -> None:
    """Cut the power for a moment: everything that runs is lost, and the host boots."""
    _put(cloud, vm, _boots=_again(vm, map(int, workers)))


def _lose(fault: str) -> Callable[[Cloud, Doc, list[str]], None]:
    def lose(cloud: Cloud, vm: Doc, workers: list[str]) -> None:
        _put(cloud, vm, _host_faults={**vm.get("_host_faults", {}), **dict.fromkeys(workers, fault)})

    return lose


def _restore(cloud: Cloud, vm: Doc, workers: list[str]) -> None:
    left = {worker: fault for worker, fault in vm.get("_host_faults", {}).items() if worker not in workers}
    _put(cloud, vm, _host_faults=left, health="HEALTHY", healthDescription=None, symptoms=None)


_ACTIONS: dict[str, Callable[..., None]] = {
    "preempt": _preempt,
    "repair": _repair,
    "maintenance": maintain,
    "unhealthy": _unhealthy,
    "crash": _crash,
    "freeze": _lose("freeze"),
    "unreachable": _lose("unreachable"),
    "restore": _restore,
}
ACTIONS = tuple(_ACTIONS)


def _strike_some(cloud: Cloud) -> None:
    if not cloud.faults.any(*VM_KINDS):
        return
    for full, vm in cloud.state.all("vm").items():
        waited = cloud.clock.now() - (vm["_ready"] or 0)
        for kind in VM_KINDS:
            if vm["state"] != "READY" or kind in vm.get("_struck", []):
                continue
            if cloud.faults.strike(kind, full, once=vm["id"], waited=waited):
                vm = {**vm, "_struck": [*vm.get("_struck", []), kind]}  # noqa: PLW2901 (what the next kind meets)
                _ACTIONS[kind](cloud, vm, [str(worker) for worker in range(vm["_hosts"])])
                vm = find_vm(cloud, full)  # noqa: PLW2901


api.ticks.append(_strike_some)


def _again(vm: Doc, workers: Iterable[int]) -> Doc:
    boots: Doc = vm.get("_boots", {})
    return {**boots, **{str(worker): boots.get(str(worker), 0) + 1 for worker in workers}}


def _later(cloud: Cloud, kind: str, vm: Doc, seconds: float) -> None:
    """Schedule an effect for this TPU VM only: one that is recreated under its name is not affected."""
    cloud.later(api, kind, vm["name"], seconds, vm=str(vm["id"]))


def _meant(cloud: Cloud, event: Doc) -> Doc | None:
    """Return the TPU VM that an effect was scheduled for; None if it is gone. One without an id is immediate."""
    vm = cloud.state.get("vm", event["target"])
    return vm if vm is not None and event["about"].get("vm") in (None, str(vm["id"])) else None


def _put(cloud: Cloud, vm: Doc, **changes: Any) -> None:
    new = {**vm, **changes}
    gone = ("healthDescription", "symptoms", "upcomingMaintenance")
    cloud.state.put("vm", vm["name"], {key: value for key, value in new.items() if value or key not in gone})
