"""Create, delete and restart shared TPU VMs. Each operation can be interrupted at any point and called again."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Protocol

from tpukit.core import waiting
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NoCapacity, NotFound, TpukitError
from tpukit.google.tpu_vm import Node, Queued, Request, TpuVms
from tpukit.sharing.inventory import READY, Vm

POLL_SECONDS = 2.0
LABEL = "tpukit-shared"
"""Label of TPU VMs that belong to users; the sweep of jobs leaves them alone."""
_ON_THE_WAY = ("CREATING", "STARTING", "RESTARTING", "REPAIRING", "REIMAGING", "")
_ENDED = ("PREEMPTED", "TERMINATED")
_WAITS = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "")


class Cloud(TpuVms, Protocol):
    def stop(self, zone: str, name: str, expected: str) -> None:
        """Stop a node. Raise Conflict if Google cannot stop it, as for slices of several hosts."""

    def start(self, zone: str, name: str, expected: str) -> None: ...


def list_zones(cloud: TpuVms, zones: list[str]) -> dict[str, list[Node]]:
    """List the nodes of each zone, in parallel. Raise the first error."""
    with ThreadPoolExecutor(max(1, min(8, len(zones)))) as pool:
        return dict(zip(zones, map(list, pool.map(cloud.nodes, zones)), strict=True))


def apply(
    cloud: TpuVms,
    vm: Vm,
    *,
    runtime: str,
    metadata: Mapping[str, str],
    queued: bool = True,
    external_ips: bool = True,
    labels: Mapping[str, str] | None = None,
) -> bool:
    """Request a TPU VM, unless it exists or is being created, and return True if it was requested.

    Raise Conflict if the remains of an earlier one are in the way.
    """
    node, request = _there(cloud, vm)
    if node is not None and node.state in (READY, *_ON_THE_WAY):
        return False
    if node is None and request is not None and request.state in _WAITS:
        return False
    if node is not None or request is not None:
        state = node.state if node else request.state if request else ""
        raise Conflict(f"{vm.name} is {state}", hint=f"`tpu vm reapply {vm.name}` deletes and recreates it")
    wanted = Request(
        vm.name,
        (vm.name,),
        accelerator=vm.type,
        runtime=runtime,
        spot=vm.spot,
        labels={LABEL: "true", **(labels or {})},
        metadata=metadata,
        external_ips=external_ips,
    )
    with suppress(Conflict):  # the response to an earlier request was lost
        if queued:
            cloud.request(vm.zone, wanted)
        else:
            cloud.create(vm.zone, wanted)
    return True


def delete(cloud: TpuVms, vm: Vm) -> bool:
    """Request the deletion of a TPU VM, and return True if it existed."""
    node, request = _there(cloud, vm)
    with suppress(NotFound):
        if request is not None and request.state != "DELETING":
            cloud.delete_queued(vm.zone, request.name, request.id)
        elif request is None and node is not None and node.state != "DELETING":
            cloud.delete_node(vm.zone, vm.name, node.id)
    return node is not None or request is not None


def restart(cloud: Cloud, vm: Vm, clock: Clock, seconds: float, say: Callable[[str], None] = waiting.silent) -> None:
    """Stop and start a TPU VM. The addresses of its hosts may change."""
    node, _ = _there(cloud, vm)
    if node is None:
        raise NotFound(f"there is no TPU VM {vm.name} in {vm.zone}", hint=f"`tpu vm apply {vm.name}` creates it")
    if len(node.hosts) > 1:  # https://cloud.google.com/tpu/docs/managing-tpus-tpu-vm
        hint = f"`tpu vm reapply {vm.name}` deletes and recreates it"
        raise Conflict(f"{vm.name} has {len(node.hosts)} hosts, and Google stops only TPUs of one host", hint=hint)
    if node.state == READY:
        cloud.stop(vm.zone, vm.name, node.id)
    wait(clock, seconds, lambda: state(cloud, vm) == "STOPPED", f"{vm.name} to stop", say)
    cloud.start(vm.zone, vm.name, node.id)
    wait(clock, seconds, lambda: state(cloud, vm) == READY, f"{vm.name} to start", say)


def ready(cloud: TpuVms, vm: Vm) -> bool:
    """Return True if the TPU VM is usable. Raise NoCapacity or Conflict if it stays unusable without a new request."""
    node, request = _there(cloud, vm)
    if node is not None and node.state == READY:
        return True
    if request is not None and request.state == "FAILED":
        raise NoCapacity(
            f"{vm.name} was refused: {request.error or 'no reason given'}",
            hint="try again later, or create one in another zone",
        )
    if request is not None and request.state in ("SUSPENDING", "SUSPENDED"):
        raise Conflict(f"{vm.name} was preempted", hint=f"`tpu vm reapply {vm.name}` recreates it")
    if node is not None and node.state in _ENDED:  # it never comes back by itself
        raise Conflict(f"{vm.name} is {node.state}", hint=f"`tpu vm reapply {vm.name}` recreates it")
    if node is None and request is None:
        raise NotFound(f"{vm.name} does not exist", hint=f"`tpu vm apply {vm.name}` creates it")
    return False


def gone(cloud: TpuVms, vm: Vm) -> bool:
    return _there(cloud, vm) == (None, None)


def state(cloud: TpuVms, vm: Vm) -> str:
    """Return the state that Google reports, or the state of the queued request."""
    node, request = _there(cloud, vm)
    if node is not None:
        return node.state or "UNKNOWN"
    return f"queued: {request.state}" if request is not None else "NOT_FOUND"


def wait(
    clock: Clock, seconds: float, done: Callable[[], bool], what: str, say: Callable[[str], None] = waiting.silent
) -> None:
    hint = "the request stays at Google; run the command again to keep waiting"
    waiting.until(clock, seconds, done, what, hint=hint, pause=POLL_SECONDS, say=say)


def _there(cloud: TpuVms, vm: Vm) -> tuple[Node | None, Queued | None]:
    node = next((one for one in cloud.nodes(vm.zone) if one.name == vm.name), None)
    name = node.queued if node is not None and node.queued else vm.name
    try:
        requests = cloud.queued(vm.zone)
    except TpukitError:
        if node is None:
            raise
        requests = ()  # without permission for the queue, the machine may still be visible
    return node, next((one for one in requests if name == one.name or vm.name in one.nodes), None)
