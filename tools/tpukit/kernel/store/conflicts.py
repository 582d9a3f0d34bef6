"""Errors of all homes, in the same words."""

from __future__ import annotations

from tpukit.core.errors import Conflict, NotFound
from tpukit.kernel.store import Entry, Kind, Lease, T


def missing(kind: Kind[T], key: str) -> NotFound:
    noun = kind.name.removesuffix("s")
    return NotFound(f"there is no {noun} {key}", hint=f"see `tpu {noun} list`")


def taken(kind: Kind[T], key: str) -> Conflict:
    return Conflict(f"there is a {kind.name.removesuffix('s')} {key} already")


def outdated(kind: Kind[T], entry: Entry[T]) -> Conflict:
    noun = kind.name.removesuffix("s")
    return Conflict(f"the {noun} {entry.key} was changed by another process meanwhile", hint="try again")


def lost(lease: Lease, now: Lease | None = None) -> Conflict:
    """Return the error for a lost lease. `now`: the lease that replaced it."""
    why = (
        f"{now.holder.name} holds it" if now and now.holder.name != lease.holder.name else "it expired or was released"
    )
    return Conflict(f"the lease {lease.name} is no longer held by {lease.holder.name}: {why}")
