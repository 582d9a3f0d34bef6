"""Checks of bodies that Google makes before it interprets them: unknown fields, wrong types, unknown values.

The fields are data from Google's own descriptions of its APIs. Numbers of enumerations, as Google's Python clients send
them, are replaced by names, and alternative spellings by JSON names, accelerator_type by acceleratorType:
https://protobuf.dev/programming-guides/json. Compute Engine and Cloud Storage accept only one spelling.
"""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

from tpubox.google.wire.api import camel
from tpubox.google.wire.common_refusals import bad_request
from tpubox.google.wire.sources import GUESS

_UNKNOWN = ": Cannot find field."
_KINDS = {
    "string": "TYPE_STRING",
    "boolean": "TYPE_BOOL",
    "int32": "TYPE_INT32",
    "int64": "TYPE_INT64",
    "double": "TYPE_DOUBLE",
}


def check(api: str, message: str, body: dict[str, Any], *, own_front: bool = False) -> dict[str, Any]:
    """Return the body with names for numbers of enumerations, or report all its problems at once.

    `own_front` ignores unknown fields, as Compute Engine and Cloud Storage do.
    """
    problems: list[tuple[str, str]] = []
    known = fields_of_messages()[api]
    if message not in known:
        raise GUESS.not_found("The requested URL was not found on this server.")  # this version has no such method
    spelt = body if own_front else _spelt(known, f"${message}", body)
    checked: dict[str, Any] = _message(known, message, spelt, "", problems)
    if own_front:
        problems = [(where, text) for where, text in problems if not text.endswith(_UNKNOWN)]
    if problems:
        raise bad_request(problems)
    return checked


@cache
def fields_of_messages() -> dict[str, dict[str, dict[str, Any]]]:
    found: dict[str, dict[str, dict[str, Any]]] = json.loads(Path(__file__).with_name("fields.json").read_bytes())
    return found


def _spelt(messages: dict[str, dict[str, Any]], kind: Any, value: Any) -> Any:
    """Return the value with the JSON names of fields. Keys of maps are unchanged."""
    if isinstance(kind, list) and isinstance(value, list):
        return [_spelt(messages, kind[0], one) for one in value]
    if isinstance(kind, dict) and "*" in kind and isinstance(value, dict):
        return {key: _spelt(messages, kind["*"], one) for key, one in value.items()}
    if not (isinstance(kind, str) and kind.startswith("$") and isinstance(value, dict)):
        return value
    fields = messages[kind[1:]]
    spelt = {}
    for sent, inner in value.items():
        name = sent if sent in fields or camel(sent) not in fields else camel(sent)
        spelt[name] = _spelt(messages, fields.get(name), inner)
    return spelt


def _message(
    messages: dict[str, dict[str, Any]], name: str, value: Any, where: str, problems: list[tuple[str, str]]
) -> Any:
    if not isinstance(value, dict):
        problems.append((where, f"Invalid value at '{where}' ({name}), {json.dumps(value)}"))
        return value
    fields = messages[name]
    checked = {}
    for field, inner in value.items():
        if field not in fields:
            place = f" at '{where}'" if where else ""
            text = f'Invalid JSON payload received. Unknown name "{field}"{place}{_UNKNOWN}'
            problems.append((where, text))
            continue
        checked[field] = _value(messages, fields[field], inner, f"{where}.{field}" if where else field, problems)
    return checked


def _value(
    messages: dict[str, dict[str, Any]], kind: Any, value: Any, where: str, problems: list[tuple[str, str]]
) -> Any:
    if value is None or kind == "any":
        return value
    if isinstance(kind, list):
        if not isinstance(value, list):
            problems.append((where, f"Invalid value at '{where}', a list is wanted: {json.dumps(value)}"))
            return value
        return [_value(messages, kind[0], one, f"{where}[{i}]", problems) for i, one in enumerate(value)]
    if isinstance(kind, dict) and "*" in kind:
        if not isinstance(value, dict):
            problems.append((where, f"Invalid value at '{where}', a map is wanted: {json.dumps(value)}"))
            return value
        return {key: _value(messages, kind["*"], one, f"{where}.{key}", problems) for key, one in value.items()}
    if isinstance(kind, dict):
        return _choice(kind["one of"], value, where, problems)
    if kind.startswith("$"):
        return _message(messages, kind[1:], value, where, problems)
    if not _fits(kind, value):
        problems.append((where, f"Invalid value at '{where}' ({_KINDS[kind]}), {json.dumps(value)}"))
        return value
    # Google returns 64-bit numbers as text and smaller ones as numbers, in whatever form they were sent.
    return int(value) if kind == "int32" else str(value) if kind == "int64" else value


def _choice(names: list[str] | dict[str, int], value: Any, where: str, problems: list[tuple[str, str]]) -> Any:
    numbers = names if isinstance(names, dict) else {name: number for number, name in enumerate(names)}
    for name, number in numbers.items():
        if value == name or (value == number and not isinstance(value, bool)):
            return name
    # The provider sends an empty text for "not set", for which the API has a longer name.
    if value != "":
        problems.append((where, f"Invalid value at '{where}', {json.dumps(value)} is none of {', '.join(numbers)}"))
    return value


def _fits(kind: str, value: Any) -> bool:
    if kind == "string":
        return isinstance(value, str)
    if kind == "boolean":
        return isinstance(value, bool)
    if isinstance(value, bool):
        return False
    if kind == "double":
        return isinstance(value, int | float) or value in ("NaN", "Infinity", "-Infinity")
    # 64-bit numbers are sent as text, and Google accepts text for smaller ones too.
    return isinstance(value, int) or (isinstance(value, str) and value.removeprefix("-").isdigit())
