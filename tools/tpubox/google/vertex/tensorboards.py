"""Vertex AI: TensorBoard instances. Their names contain the project's number and an id that Google chooses."""

from __future__ import annotations

import json
from functools import cache

from tpubox.google.wire import etags, location_checks, longrunning, update_masks
from tpubox.google.wire.api import Api, Call, Started, replaced
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc
from tpukit.core import resources

LOCATION = "projects/{project}/locations/{location}"
BOARD = LOCATION + "/tensorboards/{board}"
MESSAGES = "GoogleCloudAiplatformV1"
V1 = "google.cloud.aiplatform.v1"
_FIXED = ("pluginName", "source", "valueType")
_OUTPUT = (
    *("blobStoragePathPrefix", "createTime", "etag", "metadata", "name", "runCount", "satisfiesPzi", "satisfiesPzs"),
    "updateTime",
)
"""Output fields of an instance and of its contents, according to the discovery document."""
_METADATA = {
    "CREATE": "CreateTensorboardOperationMetadata",
    "UPDATE": "UpdateTensorboardOperationMetadata",
    "DELETE": "DeleteOperationMetadata",
}

api = Api(
    "vertex_ai",
    service="aiplatform.googleapis.com",
    document="aiplatform",
    title="Agent Platform API",
    permissions="aiplatform",
    has_location=location_checks.is_region,
    operation=longrunning.operation_format(
        lambda doc: longrunning.message(
            f"{V1}.{_METADATA[doc['type']]}", {"genericMetadata": longrunning.times(doc, end="updateTime")}
        )
    ),
)
longrunning.serve(api, LOCATION + "/operations", message="GoogleLongrunningOperation")


def numbered(call: Call, path: str) -> str:
    """Return the name of a resource of this call as Vertex AI writes it: with the project's number."""
    return path.format(**{**call.names, "project": number_of(call["project"])})


def find_board(cloud: Cloud, call: Call) -> Doc:
    return get_or_refuse(cloud, "tensorboard", numbered(call, BOARD))


def get_or_refuse(cloud: Cloud, kind: str, name: str) -> Doc:
    doc = cloud.state.get(kind, name)
    if doc is None:
        raise GUESS.not_found(f"The {kind} resource {name} is not found.")
    return doc


def patched(cloud: Cloud, call: Call, kind: str, name: str) -> Doc:
    """Return the changed document, without storing it."""
    old = get_or_refuse(cloud, kind, name)
    etags.check(call.body.get("etag"), old)
    fields = update_masks.changed(call, old, fixed=_FIXED, output=_OUTPUT)
    new = replaced(old, call.body, fields)
    return {**new, "updateTime": cloud.stamp()}


@cache
def regions() -> tuple[str, ...]:
    """Return the regions that have TensorBoard."""
    file = resources.folder("terraform") / "modules" / "tensorboard" / "regions.json"
    return tuple(json.loads(file.read_text())["regions"])


@api.on("POST", LOCATION + "/tensorboards", body=f"{MESSAGES}Tensorboard")
def _create(cloud: Cloud, call: Call) -> Started:
    if call["location"] not in regions():
        # Each region has its own host at Google; the error text of a region without one is a guess.
        raise GUESS.not_found(f"Location {call['location']} is not found or access is unauthorized.")
    if not call.body.get("displayName"):
        raise GUESS.invalid("The display name of the tensorboard must be given.")
    scope = numbered(call, LOCATION)
    full = f"{scope}/tensorboards/{10**18 + cloud.state.next()}"
    stamps = {"createTime": cloud.stamp(), "updateTime": cloud.stamp()}
    made = {**call.body, "name": full, **stamps, "etag": f"{cloud.state.next():08x}"}
    cloud.state.put("tensorboard", full, made)
    return cloud.start(api, "CREATE", scope, full, response=longrunning.message(f"{V1}.Tensorboard", etags.shown(made)))


@api.on("GET", LOCATION + "/tensorboards", lists=f"{MESSAGES}Tensorboard")
def _listed(cloud: Cloud, call: Call) -> Doc:
    mine = cloud.state.all("tensorboard", f"{numbered(call, LOCATION)}/").values()
    return {"tensorboards": [etags.shown(one) for one in mine]}


@api.on("GET", BOARD)
def _show(cloud: Cloud, call: Call) -> Doc:
    return etags.shown(find_board(cloud, call))


@api.on("PATCH", BOARD, body=f"{MESSAGES}Tensorboard")
def _patch(cloud: Cloud, call: Call) -> Started:
    name = numbered(call, BOARD)
    new = patched(cloud, call, "tensorboard", name)
    response = longrunning.message(f"{V1}.Tensorboard", etags.shown(new))
    return cloud.change(
        api, "UPDATE", numbered(call, LOCATION), name, store="tensorboard", after=new, response=response
    )


@api.on("DELETE", BOARD)
def _delete(cloud: Cloud, call: Call) -> Started:
    return cloud.start(api, "DELETE", numbered(call, LOCATION), find_board(cloud, call)["name"])


@api.on_operation_end("CREATE", "DELETE")
def _changed(cloud: Cloud, operation: Doc) -> None:
    if operation["fail"]:
        cloud.fail(operation)
    if (operation["type"] == "DELETE") != bool(operation["fail"]):
        remove(cloud, operation["target"])


def remove(cloud: Cloud, name: str) -> None:
    """Delete a TensorBoard resource with its contents."""
    for kind in ("tensorboard", "experiment", "run", "series", "point"):
        cloud.state.delete(kind, name)
        for inner in cloud.state.all(kind, f"{name}/"):
            cloud.state.delete(kind, inner)
