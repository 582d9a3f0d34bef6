"""Open the store in its home."""

from __future__ import annotations

import re
from pathlib import Path

from tpukit.core.errors import Invalid
from tpukit.kernel.store import Store, mark

_DATABASE = r"[a-z][-a-z0-9]{2,61}[a-z0-9]|\(default\)"
_SHARED = rf"firestore://(?P<project>[a-z0-9][-a-z0-9.:]+[a-z0-9])(?:/(?P<database>{_DATABASE}))?"


def open_store(setting: str | None, folder: Path, *, left: bool = False) -> Store:
    """Open the home that the setting names; without one, the file in `folder`.

    `left`: also accept a home that was moved away from.
    """
    store = _open(setting, folder)
    if not left:
        try:
            mark.refuse_if_moved(store)
        except BaseException:
            store.close()
            raise
    return store


def _open(setting: str | None, folder: Path) -> Store:
    if not setting or setting == "sqlite":
        from tpukit.kernel.store.sqlite import SqliteStore

        return SqliteStore(folder / "store.db")
    named = re.fullmatch(_SHARED, setting)
    if named is None:
        hint = "write sqlite, or firestore://PROJECT, or firestore://PROJECT/DATABASE"
        raise Invalid(f"{setting!r} is not a store", hint=hint)
    from tpukit.kernel.store.firestore import FirestoreStore

    return FirestoreStore(named["project"], named["database"] or "(default)")
