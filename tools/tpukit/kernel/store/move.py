"""Copying a collection from one home of the store to another. Twice is once; nothing is overwritten."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tpukit.core.errors import Conflict
from tpukit.kernel.store import Broken, Entry, Kind, Store, T, codec

_PAGE = 200


@dataclass(frozen=True, slots=True)
class Moved:
    copied: Sequence[str]
    present: Sequence[str]  # they were there already, just as they are in the source
    different: Sequence[str]  # they are in both, and not the same: left alone
    broken: Sequence[Broken]  # they cannot be read: left alone


def move(source: Store, destination: Store, kind: Kind[T], *, delete: bool = False, replacing: bool = False) -> Moved:
    """Copy documents with events and with fields that this version does not know. `delete`: from the source, what is in
    both. `replacing`: those of the destination are older ones."""
    keys: dict[str, list[str]] = {"copied": [], "present": [], "different": []}
    broken: list[Broken] = []
    after = ""
    while True:
        # Documents of plain clients have no place in pages.
        page = source.list(kind, after=after, limit=0 if kind.plain else _PAGE)
        broken += page.broken
        for entry in page.entries:
            outcome = _copy(source, destination, kind, entry)
            if outcome == "different" and replacing:
                destination.delete(kind, destination.get(kind, entry.key))
                outcome = _copy(source, destination, kind, entry)
            keys[outcome].append(entry.key)
            if delete and outcome != "different":
                source.delete(kind, entry)
        after = page.next
        if not after:
            return Moved(**keys, broken=broken)


def _copy(source: Store, destination: Store, kind: Kind[T], entry: Entry[T]) -> str:
    events = source.events(kind, entry.key)
    try:
        there = destination.create(kind, entry.key, entry.value, events=events)
        outcome = "copied"
    except Conflict:
        there = destination.get(kind, entry.key)
        if there.value != entry.value or destination.events(kind, entry.key) != events:
            return "different"
        outcome = "present"
    if _fields(there.raw) != _fields(entry.raw):
        destination.put(kind, replace(there, raw=entry.raw), entry.value)
    return outcome


def _fields(raw: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in raw.items() if name != codec.REVISION}
