"""Google's discovery documents from google-api-python-client: the methods of its APIs and the fields of answers.

They specify neither which fields are required nor which message an operation carries.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any

from tpubox.google import APIS

Doc = dict[str, Any]

DOCUMENTS = {api.name: api.document for api in APIS if api.document}
"""Document name of each API, by its name in request paths."""

_PREFIXED = tuple(api.name for api in APIS if api.own_front)
"""APIs whose own paths already start with their name; for the others, only the emulator adds it."""

UNDOCUMENTED = re.compile("GET storage/v1/b/[^/]+/anywhereCaches/")
"""Request of the Terraform provider before it deletes a bucket."""

_UPLOAD = re.compile("(resumable/)?upload/(?=storage/)")
"""Path prefix of methods that upload an object; resumable uploads are checked like simple ones."""

_TYPES = {"string": str, "boolean": bool, "integer": int, "number": (int, float), "object": dict, "array": list}
_FORMATS = {
    "int64": r"-?\d+",
    "uint64": r"\d+",
    "date-time": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "google-datetime": r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)",
    "google-duration": r"-?\d+(\.\d+)?s",
    "byte": r"[A-Za-z0-9+/_-]*={0,2}",
}
_CODES = range(17)
"""Codes of google.rpc."""


def problems(method: str, path: str, body: Any) -> list[str]:
    """Return where the answer to a successful request contradicts Google's documents."""
    if upload := _UPLOAD.match(path):
        method, path = "POST", path[upload.end() :]
    first, _, rest = path.partition("/")
    if first not in DOCUMENTS:
        return []  # paths of no API are objects of Cloud Storage
    # Vertex AI's own client requests operations below ui/, and some releases of the Terraform provider use v1/v1/.
    path = f"{first}/{re.sub('^(ui/|v1/v1/)', 'v1/', rest)}"
    found = documented(method, path)
    if found is None:
        return [] if UNDOCUMENTED.fullmatch(f"{method} {path}") else [f"no document has {method} {path}"]
    schema = found.get("response", {}).get("$ref")
    schemas = (_document(DOCUMENTS[first], path.split("/")[1]) or {}).get("schemas", {})
    return [f"{method} {path}: {one}" for one in _message(schemas, schema, body, schema)] if schema else []


def documented(method: str, path: str) -> Doc | None:
    """Return the documented method for this request."""
    first, version = path.split("/")[:2]
    asked = path if first in _PREFIXED else path.partition("/")[2]
    every = _methods(DOCUMENTS[first], version)
    return next((one for verb, pattern, one in every if verb == method and pattern.fullmatch(asked)), None)


@cache
def _document(name: str, version: str) -> Doc | None:
    file = resources.files("googleapiclient.discovery_cache.documents").joinpath(f"{name}.{version}.json")
    if not file.is_file():
        return None
    document: Doc = json.loads(file.read_bytes())
    return document


@cache
def _methods(name: str, version: str) -> tuple[tuple[str, re.Pattern[str], Doc], ...]:
    """Return the methods, longest path first, because the longer of two matches is more specific."""
    document = _document(name, version) or {}
    one_word = "[^/]+" if name == "storage" else "[^/:]+"

    def below(resources: Doc) -> Iterator[Doc]:
        for resource in resources.values():
            yield from resource.get("methods", {}).values()
            yield from below(resource.get("resources", {}))

    found = []
    for method in (*document.get("methods", {}).values(), *below(document.get("resources", {}))):
        path = document["servicePath"] + method.get("flatPath", method["path"])
        words = re.split(r"\{[^}]*\}", path)
        found.append((path, method["httpMethod"], re.compile(one_word.join(map(re.escape, words))), method))
    return tuple((verb, pattern, method) for _, verb, pattern, method in sorted(found, key=lambda one: -len(one[0])))


def _message(schemas: Doc, name: str, value: Any, where: str) -> Iterator[str]:
    yield from _value(schemas, schemas[name], value, where)
    if isinstance(value, dict) and name in ("Status", "GoogleRpcStatus") and value.get("code", 0) not in _CODES:
        yield f"{where}.code is {value['code']}, which google.rpc has not"
    if isinstance(value, dict) and name in ("Operation", "GoogleLongrunningOperation"):
        for part in ("metadata", "response"):
            inner = value.get(part)
            if isinstance(inner, dict) and (known := _named(schemas, str(inner.get("@type", "")))):
                body = {key: one for key, one in inner.items() if key != "@type"}
                yield from _message(schemas, known, body, f"{where}.{part}")


def _named(schemas: Doc, kind: str) -> str | None:
    """Return the schema for a message type such as type.googleapis.com/google.cloud.tpu.v2.Node."""
    words = kind.rpartition("/")[2].split(".")
    whole = "".join(word[:1].upper() + word[1:] for word in words)
    return next((name for name in (whole, words[-1]) if name in schemas), None)


def _value(schemas: Doc, schema: Doc, value: Any, where: str) -> Iterator[str]:
    if reference := schema.get("$ref"):
        yield from _message(schemas, reference, value, where)
        return
    kind = schema.get("type", "any")
    if kind == "any":
        return
    fits = isinstance(value, _TYPES[kind]) and (kind == "boolean" or not isinstance(value, bool))
    if not fits:
        yield f"{where} is {json.dumps(value)}, no {kind}"
    elif kind == "array":
        for number, one in enumerate(value):
            yield from _value(schemas, schema["items"], one, f"{where}[{number}]")
    elif kind == "object":
        yield from _object(schemas, schema, value, where)
    elif "enum" in schema and value not in schema["enum"]:
        yield f"{where} is {value}, none of {', '.join(schema['enum'])}"
    elif kind == "string" and not re.fullmatch(_FORMATS.get(schema.get("format", ""), r"(?s:.*)"), value):
        yield f"{where} is {value!r}, no {schema['format']}"


def _object(schemas: Doc, schema: Doc, value: Doc, where: str) -> Iterator[str]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name, inner in value.items():
        if name in known:
            yield from _value(schemas, known[name], inner, f"{where}.{name}")
        elif others is not None:
            yield from _value(schemas, others, inner, f"{where}.{name}")
        else:
            yield f"{where} has no field {name}"
