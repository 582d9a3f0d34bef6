"""The mark of a store: what its hardware is labelled with, and where its documents have moved to.

The sender travels with the documents, so that hardware made before a move is still recognised after it. A home that
was left is marked first and copied afterwards: from that moment no lease of it can be taken, and its drivers stop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tpukit.core.errors import Conflict, NotFound
from tpukit.kernel.store import Kind, Store

COLLECTION, KEY = "marks", "store"


class Mark(msgspec.Struct, frozen=True):
    sender: str  # on what this store makes in places that are shared; empty: as the home itself says
    moved_to: str = ""  # address of the home that has the documents now
    at: float = 0.0
    replaces: str = ""  # address of the home that is being moved back from: its documents replace older ones here


MARKS: Kind[Mark] = Kind(COLLECTION, Mark, state="moved_to", order="at")


def read(store: Store) -> Mark:
    try:
        return store.get(MARKS, KEY).value
    except NotFound:
        return Mark("")


def sender(store: Store, own: Callable[[], str]) -> str:
    """Return what this store's hardware is labelled with. `own`: for a store that nothing was ever moved to."""
    return read(store).sender or own()


def refuse_if_moved(store: Store) -> None:
    """Raise Conflict where the documents are in another home now."""
    if to := read(store).moved_to:
        raise moved(store.address, to)


def moved(address: str, to: str) -> Conflict:
    return Conflict(f"the store {address} was moved to {to}", hint=f"run `tpu settings store {to}`")


def begin_move(source: Store, target: Store, senders: tuple[str, str], *, active: bool, at: float) -> bool:
    """Give `target` the sender of `source`, then mark `source` as left and end every lease of it.

    `senders`: of source and target. `active`: the source has jobs that may hold hardware. Twice is once. Returns
    whether documents of `source` replace those of `target`, because `target` was left for it before.

    Raises:
        Conflict: The target has documents of its own under another sender, and the source has active jobs.
    """
    own, theirs = senders
    before = read(source).moved_to
    if before and before != target.address:
        raise moved(source.address, before)
    in_use = any(target.keys(kind) for kind in (_JOBS, _WORKERS))
    if active and in_use and own != theirs:
        hint = "stop these jobs first, or move to an empty store"
        raise Conflict(
            f"{source.address} has active jobs, and {target.address} marks the hardware of its own jobs differently",
            hint=hint,
        )
    there = read(target)
    back = source.address in (there.moved_to, there.replaces)
    _write(target, Mark(theirs if in_use else own, at=at, replaces=source.address if back else ""))
    _write(source, Mark(own, target.address, at))
    source.revoke()
    return back


def end_move(target: Store) -> None:
    """Everything was copied: from now on documents of `target` are newer than those of the home that was left."""
    _write(target, msgspec.structs.replace(read(target), replaces=""))


class _Any(msgspec.Struct, frozen=True):
    state: str = ""
    at: float = 0.0


_JOBS: Kind[_Any] = Kind("jobs", _Any, state="state", order="at")
_WORKERS: Kind[_Any] = Kind("fleet_workers", _Any, state="state", order="at")


def _write(store: Store, mark: Mark) -> None:
    try:
        entry = store.get(MARKS, KEY)
    except NotFound:
        store.create(MARKS, KEY, mark)
    else:
        store.put(MARKS, entry, mark)
