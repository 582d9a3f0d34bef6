"""Operations in the format that most of Google's APIs share."""

from __future__ import annotations

from collections.abc import Callable

from tpubox.google.wire.api import Api, Call
from tpubox.google.wire.cloud import Cloud, stamp
from tpubox.google.wire.refusal import CODES
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.state import Doc

TYPES = "type.googleapis.com/"


def operation_format(metadata: Callable[[Doc], Doc]) -> Callable[[Doc], Doc]:
    """Return the function that formats an API's operations.

    `metadata` returns a message of its own type, and typed clients refuse fields that this type does not have.
    """

    def operation(doc: Doc) -> Doc:
        name = f"{doc['scope']}/operations/{doc['id']}" if doc["scope"] else f"operations/{doc['id']}"
        body: Doc = {"name": name, "metadata": metadata(doc), "done": doc["done"]}
        if doc["done"]:
            if doc["error"]:
                body["error"] = {"code": CODES.get(doc["error"]["status"], 2), "message": doc["error"]["message"]}
            else:
                body["response"] = doc["about"].get("response") or {"@type": f"{TYPES}google.protobuf.Empty"}
        return body

    return operation


def times(doc: Doc, *, end: str) -> Doc:
    """Return the start time and, under the API's name for it, the end time."""
    return {"createTime": stamp(doc["started"]), **({end: stamp(doc["ended"])} if doc["done"] else {})}


def message(kind: str, body: Doc) -> Doc:
    """Return the result of an operation with its type, such as `google.cloud.tpu.v2.Node`."""
    return {"@type": TYPES + kind, **body}


def serve(api: Api, path: str, *, listed: bool = True, message: str = "Operation") -> None:
    """Serve the operations of an API below this path; not every API lists them.

    `message` is their name in the API's documents.
    """

    @api.on("GET" if listed else "", path, lists=message)
    def every(cloud: Cloud, call: Call) -> Doc:
        mine = [
            name
            for name, doc in cloud.state.all("operation").items()
            if doc["api"] == api.name and doc["scope"] in _scopes(path, call) and not doc["hidden"]
        ]
        return {"operations": [cloud.operation(api, name) for name in mine]}

    @api.on("GET", f"{path}/{{operation}}")
    def show(cloud: Cloud, call: Call) -> Doc:
        return cloud.operation(api, call["operation"], *_scopes(path, call))


def _scopes(path: str, call: Call) -> tuple[str, ...]:
    """Return the scopes of the operations at this path: some APIs name projects by their numbers."""
    parent, project = path.removesuffix("operations").rstrip("/"), call.names.get("project", "")
    return tuple(parent.format(**{**call.names, "project": name}) for name in (project, number_of(project)))
