"""TPU VMs and queued resources that are paid for, or in the way, without use. Pure.

A TPU VM whose holder is not known is in use. TPU VMs of jobs and fleets are swept by their drivers, and are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tpukit import catalogue
from tpukit.catalogue import prices
from tpukit.core.errors import TpukitError
from tpukit.google.tpu_vm import Node, Queued
from tpukit.sharing.inventory import READY, Vm

_BILLED = (READY, "STOPPING", "RESTARTING", "REPAIRING", "HIDING", "UNHIDING", "UNKNOWN")
_OVER = ("PREEMPTED", "TERMINATED", "STOPPED")
_FAILED = ("FAILED", "SUSPENDED")


@dataclass(frozen=True, slots=True)
class Waste:
    what: str  # TPU VM or queued resource
    name: str
    zone: str
    why: str
    since: float  # 0: unknown
    usd: float | None  # an hour; None: no known price
    id: str  # so that another one of this name is not deleted
    command: str
    ends: bool = True  # `tpu clean --cloud` may delete it; False: another program made it


def find(
    vms: Iterable[Vm],
    nodes: Mapping[str, Sequence[Node]],
    queued: Mapping[str, Sequence[Queued]],
    free_since: Callable[[Vm], float | None],
    owned: Collection[str],
    now: float,
    idle: float,
) -> list[Waste]:
    """Return what can go, by zone, the most expensive first.

    `free_since` returns since when a shared TPU VM has had no job, or None if it has one or that is not known. Nodes
    with a label of `owned` belong to jobs and fleets.
    """
    known = {(vm.zone, vm.name): vm for vm in vms}
    found = []
    for zone, listed in nodes.items():
        for node in listed:
            vm = known.get((zone, node.name))
            if vm is not None or not set(owned) & node.labels.keys():
                found += _of_node(zone, node, vm, free_since, now, idle)
    there = {(zone, node.name) for zone, listed in nodes.items() for node in listed}
    for zone, requests in queued.items():
        for one in requests:
            lost = one.state in _FAILED and not any((zone, name) in there for name in one.nodes)
            if lost and not set(owned) & one.labels.keys():
                why = f"{one.state.lower()}{f': {one.error}' if one.error else ''}; it has no TPU VM"
                found.append(Waste("queued resource", one.name, zone, why, 0.0, 0.0, one.id, _delete(one.name, zone)))
    return sorted(found, key=lambda one: (-(one.usd or 0.0), one.zone, one.name))


def _of_node(
    zone: str, node: Node, vm: Vm | None, free_since: Callable[[Vm], float | None], now: float, idle: float
) -> list[Waste]:
    usd = _usd(node, zone)
    if node.state in _OVER:
        command = f"tpu vm delete {node.name}" if vm else _delete_node(node.name, zone)
        why = f"{node.state.lower()}: it runs nothing, and its name is taken"
        return [Waste("TPU VM", node.name, zone, why, 0.0, 0.0, node.id, command, ends=vm is not None)]
    if node.state not in _BILLED:
        return []
    if vm is None:
        why = "no user registered it, and its labels name no job and no fleet"
        return [Waste("TPU VM", node.name, zone, why, 0.0, usd, node.id, _delete_node(node.name, zone), ends=False)]
    since = free_since(vm)
    if since is None or now - since < idle:
        return []
    return [Waste("TPU VM", vm.name, zone, "it has no job", since, usd, node.id, f"tpu vm delete {vm.name}")]


def _usd(node: Node, zone: str) -> float | None:
    try:
        shape = catalogue.find(node.accelerator)
    except TpukitError:
        return None
    price = prices.price(shape, zone, "spot" if node.spot else "on-demand")
    return price.usd if price else None


def _delete(name: str, zone: str) -> str:
    return f"gcloud compute tpus queued-resources delete {name} --zone={zone}"


def _delete_node(name: str, zone: str) -> str:
    return f"gcloud compute tpus tpu-vm delete {name} --zone={zone}"
