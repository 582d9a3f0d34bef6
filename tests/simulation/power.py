"""Power loss on the machine with the SQLite file: commits that did not wait for the disk are lost."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from simulation.stores import _TABLES as TABLES

WRITE_BACK = 30.0
"""Seconds after which the kernel has written everything by itself."""


class Disk:
    """The file as found after a power loss."""

    def __init__(self, store: Any, now: Callable[[], float]) -> None:
        self._file, self._now = store._file, now
        self._rows: dict[str, list[tuple[Any, ...]]] = {}
        type(self).release(store)
        self._commit = self._file.transaction
        self._file.transaction = self._transaction
        self._save()

    @staticmethod
    def release(store: Any) -> None:
        """Undo the patches of an earlier world."""
        if file := getattr(store, "_file", None):
            vars(file).pop("transaction", None)

    def lose(self) -> None:
        with self._commit() as db:
            for table, rows in self._rows.items():
                db.execute(f"DELETE FROM {table}")
                for row in rows:
                    db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        if self._now() - self._at > WRITE_BACK:
            self._save()
        with self._commit(durable=durable) as db:
            yield db
        if durable:  # https://www.sqlite.org/wal.html: the log is written in order, so earlier commits are safe too
            self._save()

    def _save(self) -> None:
        with self._file.connection() as db:
            self._rows = {table: db.execute(f"SELECT * FROM {table}").fetchall() for table in TABLES}
        self._at = self._now()
