"""Loss of power on the machine that has the SQLite file: commits that did not wait for the disk are gone."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

WRITE_BACK = 30.0
"""Seconds after which the kernel has written everything, by itself."""


class Disk:
    """The file as it would be found after a loss of power."""

    def __init__(self, store: Any, now: Callable[[], float]) -> None:
        self._file, self._now = store._file, now
        self._copy, self._at = sqlite3.connect(":memory:"), now()
        type(self).release(store)
        self._commit = self._file.transaction
        self._file.transaction = self._transaction
        self._save()

    @staticmethod
    def release(store: Any) -> None:
        """Undo what an earlier world did to the store."""
        vars(store._file).pop("transaction", None)

    def lose(self) -> None:
        with self._file.connection() as db:
            self._copy.backup(db)
            # A copy does not count as a change of the connection: make one, for those who keep answers until then.
            db.execute("INSERT INTO changes VALUES ('power', 1) ON CONFLICT DO UPDATE SET number = number + 1")

    @contextmanager
    def _transaction(self, *, durable: bool = False) -> Iterator[sqlite3.Connection]:
        if self._now() - self._at > WRITE_BACK:
            self._save()
        with self._commit(durable=durable) as db:
            yield db
        if durable:  # https://www.sqlite.org/wal.html: the log is written in order, so earlier commits are safe, too
            self._save()

    def _save(self) -> None:
        with self._file.connection() as db:
            db.backup(self._copy)
        self._at = self._now()
