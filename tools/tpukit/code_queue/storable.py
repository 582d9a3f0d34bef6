"""Values that programs write into documents, limited to what every store accepts. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from tpukit.code_queue.records import is_number

KEPT_CHARACTERS = 2_000
"""Characters that are kept of a field that makes a document too large."""
DEEPEST = 17


def tame(value: Any) -> Any:
    """Return a value that every store accepts: the value itself, or a short description."""
    if said := strange(value):
        return f"(removed: {said})"
    text = value if isinstance(value, str) else str(value)
    if len(text) <= KEPT_CHARACTERS:
        return value
    return f"{text[:KEPT_CHARACTERS]} … (cut: {len(text):,} characters)"


def strange(value: Any, depth: int = 0) -> str:
    """Describe the part of the value that cannot be stored; empty if there is none."""
    if depth > DEEPEST:
        return "more levels than are allowed"
    if isinstance(value, dict):
        return next((said for one in value.values() if (said := strange(one, depth + 1))), "")
    if isinstance(value, (list, tuple)):
        return next((said for one in value if (said := strange(one, depth + 1))), "")
    if value is None or isinstance(value, (str, bool, bytes, datetime)) or is_number(value):
        return ""
    return str(value) if isinstance(value, float) else f"a {type(value).__name__}"
