"""Values that programs write into documents, and what every home of the store takes of them. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tpukit.code_queue.records import is_number

KEPT_CHARACTERS = 2_000
"""Of a field that makes a document too large."""
DEEPEST = 17


def tame(value: Any) -> Any:
    """Return a value that every home takes: itself, or a few words about it."""
    if said := strange(value):
        return f"(removed: {said})"
    text = value if isinstance(value, str) else str(value)
    if len(text) <= KEPT_CHARACTERS:
        return value
    return f"{text[:KEPT_CHARACTERS]} … (cut: {len(text):,} characters)"


def strange(value: Any, depth: int = 0) -> str:
    """What in it cannot be stored, in a few words; empty: nothing."""
    if depth > DEEPEST:
        return "more levels than are allowed"
    if isinstance(value, dict):
        return next((said for one in value.values() if (said := strange(one, depth + 1))), "")
    if isinstance(value, (list, tuple)):
        return next((said for one in value if (said := strange(one, depth + 1))), "")
    if value is None or isinstance(value, (str, bool, bytes, datetime)) or is_number(value):
        return ""
    return str(value) if isinstance(value, float) else f"a {type(value).__name__}"
