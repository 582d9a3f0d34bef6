"""Generator of `fields.json`: the fields and types of the messages that routes name as bodies or lists.

    python -m tpubox.google.wire.request_fields FOLDER    writes it

FOLDER holds Google's discovery documents as `API/VERSION/API-api.json`, as in the Go module google.golang.org/api.
Below tools/provider, this prints such a folder:

    go list -m -f '{{.Dir}}' google.golang.org/api

A type is a scalar ("string", "boolean", "int32", "int64", "double", "any"), "$Name" for a message, [type] for a list,
{"*": type} for a map, {"one of": [names]} for an enumeration whose numbers count from 0, and {"one of": {name: number}}
for one whose numbers do not.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from tpubox.google import APIS
from tpubox.google.wire.api import Api

FILE = Path(__file__).with_name("fields.json")

_LOGGING = (0, 1, 2, 3, 4, 5, 7, 8, 9, 10)
_MONITORING = (0, 1, 3, 4, 5, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16)
NUMBERS = {
    "AcceleratorConfig.type": (0, 2, 4, 7, 9, 10, 11),
    "AdvancedDatapathObservabilityConfig.relayMode": (0, 1, 3, 4),
    "DataplaneV2Config.scalabilityMode": (0, 3, 4),
    "GatewayAPIConfig.channel": (0, 1, 3, 4),
    "GPUDirectConfig.gpuDirectStrategy": (0, 2),
    "LogEntry.severity": tuple(range(0, 900, 100)),
    "LoggingComponentConfig.enableComponents": _LOGGING,
    "MonitoringComponentConfig.enableComponents": _MONITORING,
    "UpgradeSettings.strategy": (0, 2, 3, 5),
}
"""Enumerations with gaps: Google's Python clients send numbers, but the discovery documents only have names."""


def discovery_document(folder: Path, api: Api, version: str) -> dict[str, Any]:
    text = (folder / api.document / version / f"{api.document}-api.json").read_text(encoding="utf-8")
    found: dict[str, Any] = json.loads(text)
    return found


def gather(folder: Path, apis: Iterable[Api] = APIS) -> dict[str, dict[str, dict[str, Any]]]:
    """Return every message of the requests and lists, by API."""
    found: dict[str, dict[str, dict[str, Any]]] = {}
    for api in apis:
        bodies, lists = _named(api, "body"), _named(api, "lists")
        for version in api.versions if api.document else ():
            name = api.schemas.get(version, api.document)
            known = found.setdefault(name, {})
            wanted = bodies | lists if name == api.document else bodies
            schemas = discovery_document(folder, api, version)["schemas"]
            # For versions with common messages, the first one takes precedence.
            messages = _messages(schemas, wanted & schemas.keys() - known.keys())
            found[name] = dict(sorted({**messages, **known}.items()))
    return {name: messages for name, messages in sorted(found.items()) if messages}


def _named(api: Api, part: str) -> set[str]:
    """Return the messages that the API's routes name as their `body`, or as the listed one."""
    return {name for routes in api.routes.values() for route in routes if (name := getattr(route, part))}


def _messages(schemas: dict[str, Any], roots: set[str]) -> dict[str, dict[str, Any]]:
    """Return these messages and all messages that they contain."""
    messages: dict[str, dict[str, Any]] = {}
    waiting = list(roots)
    while waiting:
        message = waiting.pop()
        if message in messages:
            continue
        properties = schemas[message].get("properties", {})
        messages[message] = {field: _type(f"{message}.{field}", what) for field, what in properties.items()}
        for field, what in properties.items():
            inner = what.get("items") or what
            if "properties" in inner:  # an unnamed message
                schemas[f"{message}.{field}"] = inner
                waiting.append(f"{message}.{field}")
        waiting += [reference for what in properties.values() for reference in _references(what)]
    return messages


def _type(field: str, what: dict[str, Any]) -> Any:
    if "$ref" in what:
        return f"${what['$ref']}"
    if "enum" in what:
        numbers = NUMBERS.get(field)
        return {"one of": dict(zip(what["enum"], numbers, strict=True)) if numbers else what["enum"]}
    if what["type"] == "array":
        return [_type(field, what["items"])]
    if "properties" in what:
        return f"${field}"
    if what["type"] == "object":
        return {"*": _type(field, what["additionalProperties"])} if "additionalProperties" in what else "any"
    whole = {"int32", "uint32", "int64", "uint64"}
    form = what.get("format")
    if form in whole:
        return form.removeprefix("u")
    return {"integer": "int32", "number": "double"}.get(what["type"], what["type"])


def _references(what: dict[str, Any]) -> list[str]:
    if "$ref" in what:
        return [what["$ref"]]
    inner = what.get("items") or what.get("additionalProperties")
    return _references(inner) if inner else []


def document(folder: Path) -> str:
    """Return the text of `fields.json`: one message per line, to show the changes of a new API version."""
    apis = []
    for api, messages in gather(folder).items():
        lines = ",\n".join(f"    {json.dumps(name)}: {json.dumps(fields)}" for name, fields in messages.items())
        apis.append(f"  {json.dumps(api)}: {{\n{lines}\n  }}")
    return "{\n" + ",\n".join(apis) + "\n}\n"


if __name__ == "__main__":
    FILE.write_text(document(Path(sys.argv[1])), encoding="utf-8")
