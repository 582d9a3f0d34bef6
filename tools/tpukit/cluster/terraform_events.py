"""Parse the output of `terraform … -json`, line by line, into plain data.

No I/O. A line of another version, a truncated one or one that is not JSON is never an error: it is a note, or nothing.
https://developer.hashicorp.com/terraform/internals/machine-readable-ui
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Planned:
    """A change that the plan contains."""

    address: str
    kind: str  # google_container_node_pool
    action: str  # create, update, replace, delete, read, move, import, remove
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Started:
    address: str
    action: str  # create, update, delete, read; refresh


@dataclass(frozen=True, slots=True)
class Progressed:
    address: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Finished:
    address: str
    action: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Failed:
    address: str
    action: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Summary:
    operation: str  # plan, apply, destroy
    add: int
    change: int
    remove: int


@dataclass(frozen=True, slots=True)
class Diagnostic:
    severity: str  # error, warning
    summary: str
    detail: str = ""
    address: str = ""
    where: str = ""  # main.tf:3


@dataclass(frozen=True, slots=True)
class Note:
    """Other output that a user may want to read."""

    text: str


Event = Planned | Started | Progressed | Finished | Failed | Summary | Diagnostic | Note


def parse(line: str) -> Event | None:
    """Return the event in a line, or None if it has none that matters here."""
    text = line.strip()
    if not text.startswith("{"):
        return Note(text) if text else None
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return None  # the last line of a killed program is truncated
    return _event(message) if isinstance(message, dict) else None


def _event(message: dict[str, Any]) -> Event | None:
    hook, change = _inner(message, "hook"), _inner(message, "change")
    address, action = _text(_inner(hook, "resource"), "addr"), _text(hook, "action")
    seconds = _number(hook, "elapsed_seconds")
    match message.get("type"):
        case "planned_change":
            resource = _inner(change, "resource")
            kind = _text(resource, "resource_type")
            planned = Planned(_text(resource, "addr"), kind, _text(change, "action"), _text(change, "reason"))
            return planned if planned.address else None
        case "apply_start" if address:
            return Started(address, action)
        case "refresh_start" if address:
            return Started(address, "refresh")
        case "refresh_complete" if address:
            return Finished(address, "refresh")
        case "apply_progress" if address:
            return Progressed(address, seconds)
        case "apply_complete" if address:
            return Finished(address, action, seconds)
        case "apply_errored" if address:
            return Failed(address, action, seconds)
        case "change_summary":
            sums = _inner(message, "changes")
            counts = (int(_number(sums, name)) for name in ("add", "change", "remove"))
            return Summary(_text(sums, "operation"), *counts)
        case "diagnostic":
            return _diagnostic(_inner(message, "diagnostic"))
    return None


def _diagnostic(found: dict[str, Any]) -> Diagnostic | None:
    if not _text(found, "summary"):
        return None
    place = _inner(found, "range")
    line = int(_number(_inner(place, "start"), "line"))
    where = f"{_text(place, 'filename')}:{line}" if _text(place, "filename") else ""
    severity, summary, detail, address = (_text(found, name) for name in ("severity", "summary", "detail", "address"))
    return Diagnostic(severity, summary, detail, address, where)


def _inner(value: dict[str, Any], name: str) -> dict[str, Any]:
    found = value.get(name)
    return found if isinstance(found, dict) else {}


def _text(value: dict[str, Any], name: str) -> str:
    found = value.get(name)
    return found if isinstance(found, str) else ""


def _number(value: dict[str, Any], name: str) -> float:
    found = value.get(name)
    finite = isinstance(found, (int, float)) and abs(found) < 1e15
    return float(found) if finite and found is not None else 0.0
