"""Operations in the shape that most of Google's APIs share."""

from __future__ import annotations

from tpukit.sandbox.google.api import Api, Call
from tpukit.sandbox.google.cloud import Cloud, stamp
from tpukit.sandbox.google.refusal import CODES
from tpukit.sandbox.google.state import Doc


def operation(doc: Doc) -> Doc:
    name = f"{doc['scope']}/operations/{doc['id']}" if doc["scope"] else f"operations/{doc['id']}"
    times = {"createTime": stamp(doc["started"]), "target": doc["target"], "verb": doc["type"]}
    body: Doc = {"name": name, "metadata": times, "done": doc["done"]}
    if doc["done"]:
        body["metadata"] = {**times, "endTime": stamp(doc["ended"])}
        if doc["error"]:
            body["error"] = {"code": CODES.get(doc["error"]["status"], 2), "message": doc["error"]["message"]}
        else:
            body["response"] = doc["about"].get("response", {})
    return body


def serve(api: Api, path: str) -> None:
    """Answers for the operations of an API below this path."""

    @api.on("GET", path)
    def listed(cloud: Cloud, call: Call) -> Doc:
        prefix = path.removesuffix("/operations").format(**call.names)
        found = cloud.state.all("operation").values()
        mine = [doc for doc in found if doc["api"] == api.name and doc["scope"] == prefix and not doc["hidden"]]
        return {"operations": [operation(doc) for doc in mine]}

    @api.on("GET", f"{path}/{{operation}}")
    def show(cloud: Cloud, call: Call) -> Doc:
        return cloud.operation(api, call["operation"])
