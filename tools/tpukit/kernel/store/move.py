"""Copy a collection from one home of the store to another. Idempotent; nothing is overwritten."""

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
    present: Sequence[str]  # already there, same as in the source
    different: Sequence[str]  # in both, but different: left alone
    broken: Sequence[Broken]  # unreadable: left alone


def move(source: Store, destination: Store, kind: Kind[T], *, delete: bool = False, replacing: bool = False) -> Moved:
    """Copy documents with events and with fields that this version does not know.

    `delete`: remove what is in both from the source. `replacing`: documents of the destination are older and replaced.
    """
    keys: dict[str, list[str]] = {"copied": [], "present": [], "different": []}
    broken: list[Broken] = []
    after = ""
    while True:
        # Documents of plain clients have no position in pages.
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
