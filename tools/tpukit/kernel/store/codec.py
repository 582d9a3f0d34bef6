"""Documents as plain dicts, the same for every home: fields of the record, the version of their format, a revision.

Several versions share a store. An older version that writes a document of a newer one keeps every unknown field, at
every level, and never lowers the version.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec

from tpukit.core.errors import Conflict, Invalid
from tpukit.kernel.store import Broken, Entry, Kind, Page, T

VERSION = "_version"
REVISION = "_revision"
EVENT_CHARACTERS = 4_000
_OURS = (VERSION, REVISION)
_JSON = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def decode(kind: Kind[T], raw: Mapping[str, Any]) -> T:
    """Return the record in a stored document. Raise ValueError, with a sentence, if it is unreadable."""
    value, _ = _read(kind, raw)
    return value


def read(kind: Kind[T], key: str, raw: Mapping[str, Any], revision: int, proof: Any) -> Entry[T] | Broken:
    try:
        return Entry(key, decode(kind, raw), revision, raw, proof)
    except ValueError as error:
        return Broken(key, str(error))


def page(read: Sequence[Entry[T] | Broken], cursor: str = "") -> Page[T]:
    """Return a page of the documents read, with the cursor of the next page."""
    entries = [entry for entry in read if isinstance(entry, Entry)]
    return Page(entries, [entry for entry in read if isinstance(entry, Broken)], cursor)


def with_strangers(page: Page[T], strangers: Page[T]) -> Page[T]:
    return replace(page, broken=[*page.broken, *strangers.broken]) if strangers.broken else page


def readable(kind: Kind[T], entry: Entry[T] | Broken) -> Entry[T]:
    if isinstance(entry, Broken):
        raise Conflict(
            f"{entry.key} in {kind.name} cannot be read: {entry.why}",
            hint="a newer tpukit may have written it: upgrade tpukit",
        )
    return entry


def encode(kind: Kind[T], value: T, raw: Mapping[str, Any], revision: int) -> dict[str, Any]:
    """Return the document to store for `value`. `raw`: the document stored before; empty: none."""
    # Through JSON, so that every home gets the same: no infinities, no lone surrogates.
    text = to_json(_plain(value))
    new: dict[str, Any] = from_json(text)
    if raw:
        old, doc = _read(kind, raw)
        known = msgspec.to_builtins(old, str_keys=True)
        if not doc.items() <= known.items():  # usually all fields are known, and need no comparison one by one
            new = _with_unknown(doc, known, new)
            # Fields of other programs may have types of the home: they are kept, and their text counts towards the
            # limit.
            text = json.dumps(new, default=str) if kind.limit else text
    if kind.limit and (size := len(text.encode())) > kind.limit:
        what = f"the {kind.name.removesuffix('s')} takes {size:,} bytes, and a record has at most {kind.limit:,}"
        raise Invalid(what, hint="put large values into a bucket and refer to them by name")
    new[VERSION] = max(kind.version, raw.get(VERSION, 1))
    new[REVISION] = revision
    return new


def _plain(value: msgspec.Struct) -> Any:
    """Return plain data. Raise Invalid for what no home can store, such as an object of another library."""
    try:
        return msgspec.to_builtins(value, str_keys=True)
    except (TypeError, ValueError, RecursionError) as error:
        raise Invalid(f"this cannot be stored: {error}") from error


def to_json(doc: Any) -> str:
    try:
        return clean(_JSON.encode(doc))
    except (ValueError, TypeError, RecursionError) as error:
        raise Invalid(f"this cannot be stored: {error}") from error


def from_json(text: str) -> Any:
    """Parse JSON, or raise ValueError or RecursionError."""
    try:
        return msgspec.json.decode(text)  # the speed of a queue depends on this
    except (msgspec.MsgspecError, UnicodeError):
        return json.loads(text)  # accepts what older versions stored: infinities, lone surrogates


def clean(text: str) -> str:
    """Replace lone surrogates, which programs print and no home can store."""
    return text.encode("utf-8", "replace").decode()


def event_text(text: str) -> str:
    """Return the text of an event, cut if it is too long."""
    text = clean(text)
    return text if len(text) <= EVENT_CHARACTERS else f"{text[:EVENT_CHARACTERS]} …"


def state(kind: Kind[T], value: T) -> str:
    return str(getattr(value, kind.state))


def order(kind: Kind[T], value: T) -> float:
    return float(getattr(value, kind.order))


def cursor(number: float, key: str) -> str:
    return json.dumps([number, key])


def position(after: str) -> tuple[float, str]:
    """Return the position in a cursor."""
    try:
        number, key = json.loads(after)
        return float(number), str(key)
    except (ValueError, TypeError) as error:
        raise Invalid(f"{after!r} is not a valid page token", hint="start again at the first page") from error


def _read(kind: Kind[T], raw: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    doc = _brought_up(kind, raw)
    try:
        return msgspec.convert(doc, kind.type, str_keys=True), doc
    except (msgspec.ValidationError, RecursionError) as error:
        version = raw.get(VERSION, 1)
        newer = f"version {version} is newer than {kind.version}, which this tpukit knows: "
        raise ValueError(f"{newer if version > kind.version else ''}{error}") from error


def _brought_up(kind: Kind[T], raw: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(raw, dict | Mapping):  # a dict is recognised at once
        raise ValueError("it is not an object")
    version = raw.get(VERSION, 1)
    if type(version) is not int or version < 1:
        raise ValueError(f"{version!r} is not a version")
    doc = {name: value for name, value in raw.items() if name not in _OURS}
    missing = kind.upgrades[version - 1 :]
    if missing:
        doc = copy.deepcopy(doc)  # upgrades may change their argument, and `raw` is compared later
    for number, upgrade in enumerate(missing, version):
        try:
            doc = upgrade(doc)
        except Exception as error:  # the document does not match its version, whatever was raised
            raise ValueError(f"it cannot be migrated from version {number}: {error!r}") from error
    return kind.plain.tidy(doc) if kind.plain else doc


def _with_unknown(old: Any, known: Any, new: Any) -> Any:
    """Return `new` with the fields of `old` that this version does not understand. `known` are those it does."""
    if isinstance(old, Mapping) and isinstance(known, Mapping) and isinstance(new, dict):
        merged = {name: value for name, value in old.items() if name not in known and name not in new}
        return merged | {
            name: _with_unknown(old[name], known[name], value) if name in old and name in known else value
            for name, value in new.items()
        }
    if isinstance(old, list) and isinstance(known, list | tuple) and isinstance(new, list):
        paired = [_with_unknown(*three) for three in zip(old, known, new, strict=False)]
        return paired + new[len(paired) :]
    return new
