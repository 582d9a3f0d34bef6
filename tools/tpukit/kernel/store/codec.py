"""Documents as plain dicts, the same for every home: fields of the record, the version of their format, a revision.

Versions live beside each other in a shared store. An older one may write what a newer one has written before: it keeps
every field that it does not know, at every level, and never lowers the version.
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
    """The record in a stored document. ValueError, with a sentence, where this version cannot read it."""
    value, _ = _read(kind, raw)
    return value


def read(kind: Kind[T], key: str, raw: Mapping[str, Any], revision: int, proof: Any) -> Entry[T] | Broken:
    try:
        return Entry(key, decode(kind, raw), revision, raw, proof)
    except ValueError as error:
        return Broken(key, str(error))


def page(read: Sequence[Entry[T] | Broken], cursor: str = "") -> Page[T]:
    """A page of what was read, with the cursor of the next one."""
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
    """What to store for `value`, where `raw` was stored before (empty: nothing was)."""
    # Through JSON, so that every home gets the same: no infinities, no halves of characters.
    text = to_json(_plain(value))
    new: dict[str, Any] = from_json(text)
    if raw:
        old, doc = _read(kind, raw)
        known = msgspec.to_builtins(old, str_keys=True)
        if not doc.items() <= known.items():  # mostly all is known, and need not be compared field by field
            new = _with_unknown(doc, known, new)
            # Fields of other programs may have types of the home's own: they are kept, and count with their text.
            text = json.dumps(new, default=str) if kind.limit else text
    if kind.limit and (size := len(text.encode())) > kind.limit:
        what = f"the {kind.name.removesuffix('s')} takes {size:,} bytes, and a record has at most {kind.limit:,}"
        raise Invalid(what, hint="keep large things in a bucket and name them")
    new[VERSION] = max(kind.version, raw.get(VERSION, 1))
    new[REVISION] = revision
    return new


def _plain(value: msgspec.Struct) -> Any:
    """Plain data. Invalid where a field holds what no home takes, such as an object of another library."""
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
    """ValueError or RecursionError where it is none."""
    try:
        return msgspec.json.decode(text)  # a queue is as fast as this is
    except (msgspec.MsgspecError, UnicodeError):
        return json.loads(text)  # takes what older versions stored: infinities, halves of characters


def clean(text: str) -> str:
    """Without halves of surrogate pairs, which programs print and no home takes."""
    return text.encode("utf-8", "replace").decode()


def event_text(text: str) -> str:
    """A sentence for people, not a log: cut where it is longer."""
    text = clean(text)
    return text if len(text) <= EVENT_CHARACTERS else f"{text[:EVENT_CHARACTERS]} …"


def state(kind: Kind[T], value: T) -> str:
    return str(getattr(value, kind.state))


def order(kind: Kind[T], value: T) -> float:
    return float(getattr(value, kind.order))


def cursor(number: float, key: str) -> str:
    return json.dumps([number, key])


def position(after: str) -> tuple[float, str]:
    """What a cursor says."""
    try:
        number, key = json.loads(after)
        return float(number), str(key)
    except (ValueError, TypeError) as error:
        raise Invalid(f"{after!r} is not a valid page token", hint="begin at its first page") from error


def _read(kind: Kind[T], raw: Mapping[str, Any]) -> tuple[T, dict[str, Any]]:
    doc = _brought_up(kind, raw)
    try:
        return msgspec.convert(doc, kind.type, str_keys=True), doc
    except (msgspec.ValidationError, RecursionError) as error:
        version = raw.get(VERSION, 1)
        newer = f"version {version} is newer than {kind.version}, which this tpukit knows: "
        raise ValueError(f"{newer if version > kind.version else ''}{error}") from error


def _brought_up(kind: Kind[T], raw: Mapping[str, Any]) -> dict[str, Any]:
    if not isinstance(raw, dict | Mapping):  # a dict is known at once
        raise ValueError("it is no object")
    version = raw.get(VERSION, 1)
    if type(version) is not int or version < 1:
        raise ValueError(f"{version!r} is no version")
    doc = {name: value for name, value in raw.items() if name not in _OURS}
    missing = kind.upgrades[version - 1 :]
    if missing:
        doc = copy.deepcopy(doc)  # upgrades may change what they are given, and `raw` is compared again
    for number, upgrade in enumerate(missing, version):
        try:
            doc = upgrade(doc)
        except Exception as error:  # the document is not what its version says: whatever it raised
            raise ValueError(f"it cannot be brought up from version {number}: {error!r}") from error
    return kind.plain.tidy(doc) if kind.plain else doc


def _with_unknown(old: Any, known: Any, new: Any) -> Any:
    """`new` with what `old` has and `known`, which is all that this version understood of it, has not."""
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
