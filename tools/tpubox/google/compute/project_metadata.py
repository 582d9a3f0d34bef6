"""Compute Engine: metadata common to all instances of a project, including SSH keys.

https://cloud.google.com/compute/docs/reference/rest/v1/projects/setCommonInstanceMetadata
"""

from __future__ import annotations

import json
import zlib

from tpubox.google.compute.networks import api
from tpubox.google.wire.api import After, Call, Started
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import number_of
from tpubox.google.wire.sources import GUESS
from tpubox.google.wire.state import Doc

_KIND = "project_metadata"


def attributes(cloud: Cloud, project: str) -> dict[str, str]:
    return {item["key"]: item["value"] for item in _items(cloud, project)}


def _items(cloud: Cloud, project: str) -> list[Doc]:
    items: list[Doc] = (cloud.state.get(_KIND, project) or {"items": []})["items"]
    return items


def _fingerprint(items: list[Doc]) -> str:
    return f"{zlib.crc32(json.dumps(items, sort_keys=True).encode()):08x}"


@api.on("GET", "projects/{project}")
def _project(cloud: Cloud, call: Call) -> Doc:
    items = _items(cloud, call["project"])
    metadata = {"kind": "compute#metadata", "fingerprint": _fingerprint(items), "items": items}
    return {
        "kind": "compute#project",
        "name": call["project"],
        "id": number_of(call["project"]),
        "commonInstanceMetadata": metadata,
    }


@api.on("POST", "projects/{project}/setCommonInstanceMetadata", body="Metadata")
def _set(cloud: Cloud, call: Call) -> Started:
    project, items = call["project"], call.body.get("items") or []
    if call.body.get("fingerprint", "") != _fingerprint(_items(cloud, project)):
        raise GUESS.refused(
            412, "Supplied fingerprint does not match current metadata fingerprint.", reason="conditionNotMet"
        )
    keys = [item.get("key") for item in items]
    if not all(isinstance(key, str) and key for key in keys) or len(set(keys)) < len(keys):
        raise GUESS.invalid("Invalid value for field 'resource.items': every key must be given, and once.")
    plain = [{"key": item["key"], "value": str(item.get("value", ""))} for item in items]
    scope = f"projects/{project}/global"
    return cloud.start(api, "compute.projects.setCommonInstanceMetadata", scope, f"projects/{project}", items=plain)


@api.on_operation_end("compute.projects.setCommonInstanceMetadata")
def _changed(cloud: Cloud, operation: Doc) -> After | None:
    if operation["fail"]:
        cloud.fail(operation)
        return None
    project = operation["target"].removeprefix("projects/")
    cloud.state.put(_KIND, project, {"items": operation["about"]["items"]})
    return lambda: cloud.hooks.on_vm_changed("")
