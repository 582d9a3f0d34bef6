"""Compute Engine: operations of a project, a region and a zone. Zonal ones report preempted machines of node pools."""

from __future__ import annotations

from tpubox.google.compute.networks import api, operation
from tpubox.google.wire.api import Call
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.state import Doc


@api.on("GET", "projects/{project}/global/operations/{operation}")
@api.on("GET", "projects/{project}/regions/{region}/operations/{operation}")
@api.on("GET", "projects/{project}/zones/{zone}/operations/{operation}")
@api.on("POST", "projects/{project}/global/operations/{operation}/wait")
@api.on("POST", "projects/{project}/regions/{region}/operations/{operation}/wait")
@api.on("POST", "projects/{project}/zones/{zone}/operations/{operation}/wait")
def _show_operation(cloud: Cloud, call: Call) -> Doc:
    """Return an operation. `wait` may return before it is done; the client then calls it again.

    https://cloud.google.com/compute/docs/reference/rest/v1/globalOperations/wait
    """
    return cloud.operation(api, call["operation"], _scope(call))


@api.on("GET", "projects/{project}/global/operations", lists="Operation")
@api.on("GET", "projects/{project}/regions/{region}/operations", lists="Operation")
@api.on("GET", "projects/{project}/zones/{zone}/operations", lists="Operation")
def _operations(cloud: Cloud, call: Call) -> Doc:
    scope = _scope(call)
    docs = cloud.state.all("operation").values()
    mine = [doc for doc in docs if (doc["api"], doc["scope"], doc["hidden"]) == (api.name, scope, False)]
    return {"items": [operation(doc) for doc in mine]}


def _scope(call: Call) -> str:
    names = call.names
    where = next((f"{each}s/{names[each]}" for each in ("region", "zone") if each in names), "global")
    return f"projects/{call['project']}/{where}"
