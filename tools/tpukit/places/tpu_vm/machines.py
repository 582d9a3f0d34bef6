"""Interpret the state of a job's TPU VMs in the Cloud TPU API for an attempt. Pure.

A node that is not READY and was not stopped by us is gone, whatever its state is called: a preempted one is not always
PREEMPTED, and one of a queued resource may be missing altogether.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from tpukit.google.refusals import is_quota, is_stockout
from tpukit.google.tpu_vm import Node, Queued
from tpukit.jobs.reasons import Reason, State
from tpukit.places.base import Handle
from tpukit.places.tpu_vm import target

NODES = "nodes"
"""Key in what an attempt remembers: ids of the TPU VMs that it began on. A recreated one has another id."""
_USABLE = ("READY", "")
_COMING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING")
_WAITING = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING", "")
_REASONS = {"PREEMPTED": Reason.PREEMPTED, "REPAIRING": Reason.MAINTENANCE}


@dataclass(frozen=True, slots=True)
class Gone:
    reason: Reason
    words: str


@dataclass(frozen=True, slots=True)
class Machines:
    """The TPU VMs of one attempt. Exactly one holds: `ready`, `waits`, `failed`, or something has to be created."""

    nodes: tuple[Node | None, ...]  # slice by slice
    held: bool  # something that the job created exists
    ready: bool = False  # its hosts can be contacted: all of them, or those of slices that are not gone
    gone: Mapping[int, Gone] = field(default_factory=dict)  # slices that a begun attempt has lost
    waits: str = ""
    short: bool = False  # it waits for hardware that is out of stock
    failed: Gone | None = None
    queued: tuple[Queued, ...] = ()  # requests for these nodes
    strangers: tuple[str, ...] = ()  # created by another user or tool under a name that the user gave for the job

    @property
    def there(self) -> list[Node]:
        """The TPU VMs that the attempt has."""
        return [node for index, node in enumerate(self.nodes) if node is not None and index not in self.gone]


def assess(handle: Handle, nodes: Mapping[str, Node], queued: Mapping[str, Queued], store: str) -> Machines:
    """Return the state of an attempt's TPU VMs.

    `nodes` and `queued`: all of the zone, by name. `queued` may be empty if all nodes are READY. `store`: the label of
    this store.
    """
    plan = handle.plan
    names = target.nodes(plan)
    present = tuple(nodes.get(name) for name in names)
    own = target.is_own(plan)
    requests = tuple(one for one in queued.values() if one.name == plan.id or set(one.nodes) & set(names))
    held = own and bool(any(present) or requests)
    seen = Machines(present, held, queued=requests)
    if begun := handle.attempt.learned.get(NODES):
        lost = {
            index: _gone(name, node, requests)
            for index, (name, node, known) in enumerate(zip(names, present, begun, strict=True))
            if node is None or node.id != known or node.state not in _USABLE
        }
        return replace(seen, ready=True, gone=lost)
    if not own:
        seen = _without_strangers(handle, seen, store)
    if seen.strangers or must_renew(handle, seen):
        return seen
    if all(node is not None and node.state in _USABLE for node in present):
        return replace(seen, ready=True)
    return _request(handle, seen) if requests else _unqueued(handle, seen)


def must_renew(handle: Handle, seen: Machines) -> bool:
    """Return whether the TPU VMs were created for an earlier attempt, and this one is to have new ones."""
    if handle.attempt.action != "reapply":
        return False
    if not target.is_own(handle.plan):
        return _is_spent(handle, seen)
    labels = [one.labels for one in (*seen.nodes, *seen.queued) if one is not None]
    return any(target.made_for(each, handle.plan) != handle.attempt.number for each in labels)


def had_before(handle: Handle) -> set[str]:
    """Return ids of the TPU VMs that earlier attempts ran on."""
    return {one for attempt in handle.earlier for one in attempt.learned.get(NODES, ())}


def _without_strangers(handle: Handle, seen: Machines, store: str) -> Machines:
    """Move what is neither known by its id nor created by tpukit for this store to `strangers`."""
    known = {*target.of(handle.plan).ids, *had_before(handle)}
    if not known:  # the record of an earlier version: its TPU VMs are known by name until it begins
        return seen

    def is_known(one: Node | Queued) -> bool:
        label = one.labels.get(target.SHARED_STORE)
        ours = label == store or (label is None and target.made_for(one.labels, handle.plan) is not None)
        return one.id in known or ours

    nodes = tuple(node if node is not None and is_known(node) else None for node in seen.nodes)
    made = {node.queued for node in nodes if node is not None}
    queued = tuple(one for one in seen.queued if one.name in made or is_known(one))
    others = [*(one for one in seen.nodes if one not in nodes), *(one for one in seen.queued if one not in queued)]
    strangers = tuple(dict.fromkeys(one.name for one in others if one is not None))
    return replace(seen, nodes=nodes, queued=queued, strangers=strangers)


def _is_spent(handle: Handle, seen: Machines) -> bool:
    """Return whether TPU VMs that the user named have to be recreated: the job had them before, or they are unusable.

    Leave those alone that another job, or `tpu vm`, may have recreated meanwhile or is about to recreate.
    """
    had = had_before(handle)
    if any(node is not None and node.id in had for node in seen.nodes):
        return True
    number, plan = handle.attempt.number, handle.plan
    dead = [one for one in seen.queued if one.state not in _WAITING and one.state != "ACTIVE"]
    if any(one.state != "FAILED" or target.made_for(one.labels, plan) != number for one in dead):
        return True
    return any(node is not None and node.state not in (*_USABLE, *_COMING) for node in seen.nodes)


def _request(handle: Handle, seen: Machines) -> Machines:
    number = handle.attempt.number
    for one in seen.queued:
        made = target.made_for(one.labels, handle.plan)
        if one.state in _WAITING:
            short = one.state == "WAITING_FOR_RESOURCES"
            return replace(seen, waits=_waits(one), short=short)
        if one.state == "FAILED" and made == number and not one.expired:
            return replace(seen, failed=Gone(_why_failed(one.error), one.error or f"queued resource {one.name} failed"))
    if coming := [node for node in seen.nodes if node is not None and node.state in _COMING]:
        return replace(seen, waits=f"TPU VM {coming[0].name} is {coming[0].state}")
    return seen if target.is_own(handle.plan) else _unqueued(handle, seen)


def _waits(request: Queued) -> str:
    if request.state == "WAITING_FOR_RESOURCES":
        return "Google has no such slice available now"
    words = f"queued resource {request.name} is {request.state or '?'}"
    return f"{words}: the request starts at {request.after}" if request.state == "ACCEPTED" and request.after else words


def _unqueued(handle: Handle, seen: Machines) -> Machines:
    for name, node in zip(target.nodes(handle.plan), seen.nodes, strict=True):
        if node is not None and node.state in _COMING:
            return replace(seen, waits=f"TPU VM {name} is {node.state}")
        remade = handle.attempt.action == "reapply" and node is None
        if not target.is_own(handle.plan) and not remade and (node is None or node.state not in _USABLE):
            return replace(seen, failed=_gone(name, node, seen.queued))
    return seen


def _gone(name: str, node: Node | None, requests: tuple[Queued, ...]) -> Gone:
    suspended = [one for one in requests if one.state in ("SUSPENDING", "SUSPENDED") and one.by_service]
    if node is None:
        reason = Reason.PREEMPTED if suspended else Reason.HOST_LOST
        return Gone(reason, f"TPU VM {name} was deleted")
    if node.state in _USABLE:
        return Gone(Reason.HOST_LOST, f"TPU VM {name} was recreated")
    reason = _REASONS.get(node.state, Reason.PREEMPTED if suspended else Reason.HOST_LOST)
    return Gone(reason, f"TPU VM {name} is {node.state}" + (f": {node.says}" if node.says else ""))


def _why_failed(error: str) -> Reason:
    if is_quota(error):
        return Reason.NO_QUOTA
    return Reason.NO_CAPACITY if is_stockout(error) or "expired" in error else Reason.HOST_LOST


def state_of(seen: Machines) -> State:
    """Return the state of an attempt whose hosts are not ready yet."""
    if seen.failed is not None:
        return State.FAILED
    return State.SCHEDULED if seen.waits else State.PENDING
