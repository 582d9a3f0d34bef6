"""Cloud TPU API v2: queued resources, which are requests for TPU VMs that wait for capacity."""

from __future__ import annotations

import re

from tpubox.google.tpu import node_fields as tpu_node_fields
from tpubox.google.tpu import queue_progress, queue_timing, queued_requests
from tpubox.google.tpu import versions as tpu_versions
from tpubox.google.tpu.service import LOCATION, api, check_quota, place, respond, start
from tpubox.google.wire.api import Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GUESS, TPU_EXISTS
from tpubox.google.wire.state import Doc

QUEUED = LOCATION + "/queuedResources/{queued}"


@api.on("POST", LOCATION + "/queuedResources", body="QueuedResource")
def _create(cloud: Cloud, call: Call) -> Started:
    name = call.query.get("queuedResourceId", "")
    if not re.fullmatch(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?", name):
        raise GUESS.invalid(f"Invalid queued resource id {name!r}.")
    full = f"{place(call)}/queuedResources/{name}"
    request = call.query.get("requestId", "")
    old = cloud.state.get("queued", full)
    if old and request and old["_request"] == request:
        return Started(old["_operation"])
    if old:
        raise TPU_EXISTS.exists(f"Resource '{full}' already exists", full)
    body = tpu_versions.sent(call)
    queue_timing.check(body, cloud.clock.now())
    nodes = queued_requests.nodes(call, body)
    holding = queued_requests.holding(call, body, nodes)
    for each, node in nodes.items():
        tpu_node_fields.check(each, node, call["location"])
    check_quota(cloud, holding, full)
    made = {
        **body,
        "name": full,
        "createTime": cloud.stamp(),
        "_nodes": nodes,
        "_wants": holding.doc(),
        "_holds": holding.doc(),
        "_request": request,
        **_window(cloud, body),
    }
    started = start(cloud, call, "CREATE_QUEUED_RESOURCE", full)
    queue_progress.put(cloud, {**made, "_operation": started.id}, "CREATING", "USER")
    return started


def _window(cloud: Cloud, body: Doc) -> Doc:
    after, until = queue_timing.window_of(body, cloud.clock.now())
    return {"_after": after, "_until": until, "_ends": None}


def _unless_failed(cloud: Cloud, operation: Doc) -> Doc | None:
    """Return the queued resource of an operation; None if it is gone, or if the operation fails, which it records."""
    doc = cloud.state.get("queued", operation["target"])
    if doc is None or not operation["fail"]:
        return doc
    cloud.fail(operation)
    queue_progress.fail(cloud, doc, operation["fail"], "INTERNAL")
    return None


@api.on_operation_end("CREATE_QUEUED_RESOURCE", "RESET_QUEUED_RESOURCE")
def _accepted(cloud: Cloud, operation: Doc) -> None:
    if (doc := _unless_failed(cloud, operation)) is None:
        return
    queue_progress.accept(cloud, doc)
    respond(cloud, operation, "QueuedResource", cloud.state.get("queued", operation["target"]) or doc)


@api.on("GET", LOCATION + "/queuedResources")
def _listed(cloud: Cloud, call: Call) -> Doc:
    where = f"projects/{call['project']}/locations/" if call["location"] == "-" else f"{place(call)}/queuedResources/"
    return {"queuedResources": [_shown(call, doc) for doc in cloud.state.all("queued", where).values()]}


@api.on("GET", QUEUED)
def _show(cloud: Cloud, call: Call) -> Doc:
    return _shown(call, find_queued(cloud, call))


def _shown(call: Call, doc: Doc) -> Doc:
    return tpu_versions.shown("QueuedResource", doc, tpu_versions.of(call))


def find_queued(cloud: Cloud, call: Call) -> Doc:
    full = QUEUED.format(**call.names)
    found = cloud.state.get("queued", full)
    if found is None:
        raise GUESS.not_found(f"Resource '{full}' was not found")
    return found


@api.on("POST", QUEUED + ":reset")
def _reset(cloud: Cloud, call: Call) -> Started:
    """Queue the resource again. That the durations of its policy restart is a guess."""
    doc = find_queued(cloud, call)
    if doc["state"]["state"] not in ("ACTIVE", "SUSPENDED", "FAILED"):
        raise GUESS.not_ready(
            f"{doc['name']} is {doc['state']['state']}: only ACTIVE, SUSPENDED and FAILED can be reset."
        )
    queue_progress.remove_vms(cloud, doc)
    queue_progress.put(cloud, {**doc, **_window(cloud, doc), "_holds": doc["_wants"]}, "CREATING", "USER")
    return start(cloud, call, "RESET_QUEUED_RESOURCE", doc["name"])


@api.on("DELETE", QUEUED)
def _delete(cloud: Cloud, call: Call) -> Started:
    doc = find_queued(cloud, call)
    state = doc["state"]["state"]
    if state == "DELETING":
        raise GUESS.not_ready(f"{doc['name']} is being deleted already.")
    if queue_progress.vms(cloud, doc) and not call.flag("force"):
        raise GUESS.not_ready(f"{doc['name']} is {state} and has nodes: delete these too, with force.")
    queue_progress.put(cloud, doc, "DELETING", "USER")
    return start(cloud, call, "DELETE_QUEUED_RESOURCE", doc["name"])


@api.on_operation_end("DELETE_QUEUED_RESOURCE")
def _went(cloud: Cloud, operation: Doc) -> None:
    if (doc := _unless_failed(cloud, operation)) is None:
        return
    queue_progress.remove_vms(cloud, doc)
    cloud.state.delete("queued", operation["target"])
