"""A cache for reads of a SQLite store, valid until a document changes.

Drivers list the same records in every round, and each read costs a query and decoding. Every write invalidates the
cache: SQLite counts the rows that its connection has changed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

READS = ("get", "list", "keys", "strangers", "events")
LEASES = ("acquire", "renew", "release", "prune", "revoke")


class Reads:
    def __init__(self, store: Any) -> None:
        self._store = store
        self._answers: dict[Any, Any] = {}
        self._version = -1
        self._leases = 0  # row changes by leases, which are not documents
        with store._file.connection() as db:
            self._db = db  # one thread needs one connection

    def __getattr__(self, name: str) -> Any:
        real = getattr(self._store, name)
        made = self._read(name, real) if name in READS else self._lease(real) if name in LEASES else real
        self.__dict__[name] = made
        return made

    def _read(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def read(kind: Any, *args: Any, **more: Any) -> Any:
            version = self._db.total_changes - self._leases
            if version != self._version:
                self._answers.clear()
                self._version = version
            what = (name, kind.name, args, *((key, _hashable(value)) for key, value in more.items()))
            if what not in self._answers:
                self._answers[what] = real(kind, *args, **more)
            return self._answers[what]

        return read

    def _lease(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def change(*args: Any) -> Any:
            before = self._db.total_changes
            try:
                return real(*args)
            finally:
                self._leases += self._db.total_changes - before

        return change


def _hashable(value: Any) -> Any:
    return tuple(value) if isinstance(value, (list, tuple)) else value
