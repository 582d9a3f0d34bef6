"""Presence of the `tpu serve` processes of a store: a lease while one runs, and a note of when each last ran."""

from __future__ import annotations

import msgspec
from msgspec.structs import replace

from tpukit.core.errors import Conflict
from tpukit.kernel.store import Holder, Kind, Store, change, everything

PREFIX = "serve/"


class Serving(msgspec.Struct, frozen=True):
    name: str  # USER@MACHINE
    created: float
    seen: float  # last time it noted that it runs


SERVING: Kind[Serving] = Kind("serving", Serving, state="name", order="created")
msgspec.json.Decoder(Serving)


def lease_name(holder: Holder) -> str:
    return f"{PREFIX}{holder.name}"


def note(store: Store, holder: Holder, now: float) -> None:
    """Note that a `tpu serve` of this user and machine runs now."""
    name = holder.name.partition("/")[0]
    try:
        store.create(SERVING, name, Serving(name, now, now))
    except Conflict:
        change(store, SERVING, name, lambda old: replace(old, seen=max(old.seen, now)))


def running(store: Store) -> bool:
    return any(lease.name.startswith(PREFIX) for lease in store.leases())


def last_seen(store: Store) -> float:
    """Return when any `tpu serve` last ran, or 0 if none ever did."""
    return max((entry.value.seen for entry in everything(store, SERVING)), default=0.0)
