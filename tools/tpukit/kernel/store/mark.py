"""The mark of a store: the label of its hardware, and the home to which its documents have moved.

The sender moves with the documents, so that hardware created before a move is still recognised. A move marks the old
home first and copies afterwards: from then on no lease of it can be acquired, and its drivers stop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

from tpukit.core.errors import Conflict, NotFound
from tpukit.kernel.store import Kind, Store

COLLECTION, KEY = "marks", "store"


class Mark(msgspec.Struct, frozen=True):
    sender: str  # label on what this store creates in shared places; empty: the home's own
    moved_to: str = ""  # address of the home that now has the documents
    at: float = 0.0
    replaces: str = ""  # address of the home being moved back from, whose documents replace older ones here


MARKS: Kind[Mark] = Kind(COLLECTION, Mark, state="moved_to", order="at")


def read(store: Store) -> Mark:
    try:
        return store.get(MARKS, KEY).value
    except NotFound:
        return Mark("")


def sender(store: Store, own: Callable[[], str]) -> str:
    """Return the label of this store's hardware. `own`: for a store to which nothing was ever moved."""
    return read(store).sender or own()


def refuse_if_moved(store: Store) -> None:
    """Raise Conflict if the documents are in another home now."""
    if to := read(store).moved_to:
        raise moved(store.address, to)


def moved(address: str, to: str) -> Conflict:
    return Conflict(f"the store {address} was moved to {to}", hint=f"run `tpu settings store {to}`")


def begin_move(source: Store, target: Store, senders: tuple[str, str], *, active: bool, at: float) -> bool:
    """Give `target` the sender of `source`, then mark `source` as left and end all its leases. Idempotent.

    `senders`: of source and target. `active`: the source has jobs that may hold hardware. Returns whether documents of
    `source` replace those of `target`, because `target` was moved to it before.

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
    """End the move: everything is copied, and from now on documents of `target` are the newer ones."""
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
