"""State transitions of a queued resource.

    CREATING → ACCEPTED → (WAITING_FOR_RESOURCES →) PROVISIONING → ACTIVE → SUSPENDING → SUSPENDED
                                     any of these → FAILED, DELETING

A request with a later start time stays ACCEPTED until then: it waits for a time, not for resources. (According to
Google's pages WAITING_FOR_RESOURCES has replaced ACCEPTED; whether it has for these too is unknown.) A queued resource
is SUSPENDED when one of its VMs was preempted, when they reach their maximum run time, or when a user has deleted all
of them (https://cloud.google.com/tpu/docs/queued-resources). It does not resume by itself, and like a FAILED one it
counts against the quota until it is deleted or reset.
"""

from __future__ import annotations

from functools import partial

from tpubox.google.compute import stock_and_quota
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.tpu import networks as tpu_networks
from tpubox.google.tpu import nodes as tpu_nodes
from tpubox.google.tpu import queue_timing, queued_requests
from tpubox.google.tpu.service import api
from tpubox.google.wire.api import After
from tpubox.google.wire.cloud import Cloud, stamp
from tpubox.google.wire.refusal import CODES, Refused
from tpubox.google.wire.state import Doc

WAIT_SECONDS = 1.0
"""Interval between two checks for capacity."""
_DATA = {
    state: f"{state.lower()}Data"
    for state in ("CREATING", "ACCEPTED", "PROVISIONING", "FAILED", "DELETING", "ACTIVE", "SUSPENDING", "SUSPENDED")
}
"""Data field of each state. All but that of FAILED are empty; that they are present then is a guess."""


def put(cloud: Cloud, doc: Doc, state: str, by: str = "SERVICE", *, then: float | None = None, **data: object) -> None:
    """Put a queued resource into a state, which it leaves by itself after `then` seconds."""
    about = {"state": state, "stateInitiator": by, **({_DATA[state]: data} if state in _DATA else {})}
    if then is not None:
        doc = {**doc, "_due": cloud.clock.now() + then}
        cloud.later(api, "ADVANCE", doc["name"], then)
    cloud.state.put("queued", doc["name"], {**doc, "state": about})


def accept(cloud: Cloud, doc: Doc) -> None:
    waits = doc["_after"] - cloud.clock.now()
    put(cloud, doc, "ACCEPTED", then=max(waits, cloud.settings.duration("ADVANCE")))


def fail(cloud: Cloud, doc: Doc, message: str, status: str) -> None:
    put(cloud, {**doc, "_holds": doc["_wants"]}, "FAILED", error={"code": CODES[status], "message": message})


def vms(cloud: Cloud, doc: Doc) -> dict[str, Doc]:
    """Return the existing VMs of a queued resource. A foreign VM may have the name of a deleted one."""
    found = {name: cloud.state.get("vm", name) for name in doc["_nodes"]}
    return {name: vm for name, vm in found.items() if vm and vm.get("queuedResource") == doc["name"]}


def remove_vms(cloud: Cloud, doc: Doc) -> None:
    for name in vms(cloud, doc):
        tpu_nodes.remove(cloud, name)


def suspend_without_nodes(cloud: Cloud, name: str) -> None:
    """Suspend a queued resource whose last VM was deleted by a user.

    That it stays ACTIVE while some are left is a guess.
    """
    doc = cloud.state.get("queued", name)
    if doc and doc["state"]["state"] == "ACTIVE" and not vms(cloud, doc):
        put(cloud, doc, "SUSPENDING", "USER", then=cloud.settings.duration("ADVANCE"))


@api.on_operation_end("ADVANCE")
def _advance(cloud: Cloud, event: Doc) -> After | None:
    doc = cloud.state.get("queued", event["target"])
    if doc is None or cloud.clock.now() < doc.get("_due", 0.0):
        return None  # deleted, or recreated since
    state = doc["state"]["state"]
    if state in ("ACCEPTED", "WAITING_FOR_RESOURCES"):
        _seek_capacity(cloud, doc)
    elif state == "PROVISIONING":
        if fault := cloud.faults.strike("fail", f"PROVISION {doc['name']}"):
            remove_vms(cloud, doc)
            fail(cloud, doc, fault.message or "An internal error has occurred.", "INTERNAL")
            return None
        _activate(cloud, doc)
        return partial(cloud.hooks.on_vm_changed, "")
    elif state == "SUSPENDING" and any(map(cloud.hooks.vm_has_hosts, doc["_nodes"])):
        # The hosts have time to shut down.
        put(cloud, doc, "SUSPENDING", doc["state"]["stateInitiator"], then=WAIT_SECONDS)
    elif state == "SUSPENDING":
        remove_vms(cloud, doc)
        put(cloud, {**doc, "_holds": doc["_wants"]}, "SUSPENDED", doc["state"]["stateInitiator"])
    return None


def _seek_capacity(cloud: Cloud, doc: Doc) -> None:
    if doc["_until"] is not None and cloud.clock.now() >= doc["_until"]:
        fail(cloud, doc, "The request expired before it could be fulfilled.", "FAILED_PRECONDITION")
        return
    try:
        for name, node in doc["_nodes"].items():
            tpu_networks.check(cloud, name, node)
    except Refused as refused:
        fail(cloud, doc, refused.message, refused.status)
        return
    holding = Holding(**doc["_wants"])
    chips = holding.chips // len(doc["_nodes"])
    share = Holding(holding.zone, holding.generation, chips, holding.spot, holding.reservation, up=True)
    try:
        stock_and_quota.find(cloud, holding, doc["name"])
        for name, node in doc["_nodes"].items():
            scheduling = queued_requests.scheduling(doc, node)
            wanted = {**node, "schedulingConfig": scheduling} if scheduling else node
            tpu_nodes.add(cloud, name, wanted, share, queuedResource=doc["name"], **_slice(doc, name))
    except Refused as refused:
        remove_vms(cloud, doc)  # all or nothing
        if refused.code == 409:
            fail(cloud, doc, refused.message, "ALREADY_EXISTS")
        else:
            put(cloud, doc, "WAITING_FOR_RESOURCES", then=WAIT_SECONDS)
        return
    put(cloud, {**doc, "_holds": None}, "PROVISIONING", then=cloud.settings.duration("ADVANCE"))


def _slice(doc: Doc, name: str) -> Doc:
    """Return the fields by which hosts of several slices of one queued resource know each other."""
    names = list(doc["_nodes"])
    more = {"_alpha": True, "apiVersion": "V2_ALPHA1"} if doc.get("_alpha") else {}
    if len(names) < 2:
        return more
    about = {"number": names.index(name), "count": len(names), "first": names[0]}
    return {**more, "multisliceNode": True, "_slice": about}


def _activate(cloud: Cloud, doc: Doc) -> None:
    ends = queue_timing.end_of_run(doc, cloud.clock.now())
    known = {} if ends is None else {"terminationTimestamp": stamp(ends)}
    for name, vm in vms(cloud, doc).items():
        if vm["state"] != "DELETING":
            tpu_nodes.make_ready(cloud, name, **known)
    put(cloud, {**doc, "_ends": ends}, "ACTIVE")
    if ends is not None:
        cloud.later(api, "RUN_OUT", doc["name"], max(ends - cloud.clock.now(), 0.0))
    suspend_without_nodes(cloud, doc["name"])


@api.on_operation_end("RUN_OUT")
def _run_out(cloud: Cloud, event: Doc) -> After | None:
    """Suspend at the end of the run time: the hosts shut down as for a preemption, and the VMs are deleted."""
    doc = cloud.state.get("queued", event["target"])
    if doc is None or doc["state"]["state"] != "ACTIVE" or doc.get("_ends") is None:
        return None
    if cloud.clock.now() < doc["_ends"]:
        return None  # recreated or reset since
    for name in vms(cloud, doc):
        tpu_nodes.terminate(cloud, name)
    put(cloud, doc, "SUSPENDING", then=cloud.settings.duration("ADVANCE"))
    return partial(cloud.hooks.on_vm_changed, "")


def _suspend_preempted(cloud: Cloud) -> None:
    for name, preempted in cloud.state.all("vm_preempted").items():
        vm = cloud.state.get("vm", name)
        if vm is None or vm["state"] != "PREEMPTED":
            cloud.state.delete("vm_preempted", name)
            continue
        doc = cloud.state.get("queued", preempted["queued"])
        if doc and doc["state"]["state"] == "ACTIVE":
            put(cloud, doc, "SUSPENDING", then=cloud.settings.duration("ADVANCE"))


api.ticks.append(_suspend_preempted)
