"""Documents as Firestore stores them: native fields where possible, JSON text elsewhere.

Limits (https://firebase.google.com/docs/firestore/quotas): a megabyte a document, no list within a list, no empty or
dunder names, 20 levels, numbers of 64 bits. Two fields carry the order, so that lists need no index that a user must
create: single fields are indexed automatically.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from tpukit.core.errors import Invalid
from tpukit.kernel.store import Kind, T, codec

LIMIT = 1_048_576
TEXTS = "_json"  # names of fields that are JSON text
BY_ORDER = "_by_order"
BY_STATE = "_by_state"
CHANGED = "_changed"  # time of change on the server's clock, for listeners
_OURS = (TEXTS, BY_ORDER, BY_STATE, CHANGED)
_DEPTH = 18  # 20 with the document and the field itself


def to_native(kind: Kind[T], key: str, value: T, doc: Mapping[str, Any]) -> dict[str, Any]:
    texts = [name for name, content in doc.items() if name in kind.opaque or not _fits(content, _DEPTH)]
    native = {name: codec.to_json(content) if name in texts else content for name, content in doc.items()}
    place = rank(codec.order(kind, value), key)
    native = _with_timestamps(kind, native)
    native |= {TEXTS: texts, BY_ORDER: place, BY_STATE: f"{codec.state(kind, value)} {place}"}
    size = 32 + len(kind.name) + len(key) + _size(native)
    if size > LIMIT:
        what = f"the {kind.name.removesuffix('s')} {key} takes {size:,} bytes, and Firestore allows {LIMIT:,}"
        raise Invalid(what, hint="put large values into a bucket and refer to them by name")
    return native


def from_native(kind: Kind[T], native: Mapping[str, Any]) -> dict[str, Any]:
    """Parse JSON texts of a document. Raise ValueError if one is not JSON."""
    texts = native.get(TEXTS, ())
    doc = {
        name: json.loads(content) if name in texts and isinstance(content, str) else content
        for name, content in native.items()
        if name not in _OURS
    }
    if kind.plain:
        doc |= {name: _seconds(doc[name]) for name in kind.plain.times if name in doc}
        doc[kind.plain.placed] = str(native.get(BY_STATE, "")).startswith(f"{doc.get(kind.state)} ")
    return doc


def _with_timestamps(kind: Kind[T], native: dict[str, Any]) -> dict[str, Any]:
    """Convert times for plain clients, and drop those that have not happened."""
    if kind.plain is None:
        return native
    absent = {name for name in kind.plain.times if not native.get(name)} | {kind.plain.placed}
    return {
        name: datetime.fromtimestamp(content, UTC) if name in kind.plain.times else content
        for name, content in native.items()
        if name not in absent
    }


def _seconds(value: Any) -> float:
    """Return the value in seconds, 0 if it is not a time."""
    if isinstance(value, datetime):
        return value.timestamp()
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0


def rank(number: float, key: str) -> str:
    """Return text that sorts as (number, key) does."""
    (bits,) = struct.unpack(">Q", struct.pack(">d", number))
    # IEEE 754 numbers sort like their bits, once negative numbers are inverted.
    return f"{bits ^ (0xFFFF_FFFF_FFFF_FFFF if bits >> 63 else 1 << 63):016x} {key}"


def to_id(name: str) -> str:
    """Escape a name as a document id, without what Firestore reserves."""
    plain = name.replace("%", "%25").replace("/", "%2F")
    if plain in (".", "..") or (plain.startswith("__") and plain.endswith("__")):
        return f"%{ord(plain[0]):02X}{plain[1:]}"
    return plain


def from_id(document: str) -> str:
    from urllib.parse import unquote

    return unquote(document)


def _fits(value: Any, depth: int) -> bool:
    if isinstance(value, Mapping):
        names = all(name and not (name.startswith("__") and name.endswith("__")) for name in value)
        return depth > 0 and names and all(_fits(item, depth - 1) for item in value.values())
    if isinstance(value, list):
        return depth > 0 and all(not isinstance(item, list) and _fits(item, depth - 1) for item in value)
    return not isinstance(value, int) or -(2**63) <= value < 2**63


def _size(value: Any) -> int:
    """Return the size as Firestore counts it: https://firebase.google.com/docs/firestore/storage-size."""
    if isinstance(value, Mapping):
        return sum(_size(name) + _size(item) for name, item in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    if isinstance(value, str):
        return len(value.encode()) + 1
    return 1 if value is None or isinstance(value, bool) else len(value) if isinstance(value, bytes) else 8
