"""Homes of the simulated store: the real SQLite home in memory, emptied for each world."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tpukit.store.sqlite import SqliteStore

_TABLES = ("documents", "leases", "changes", "events", "sqlite_sequence")


class Home:
    """The real store. One connection is all that one thread needs, so it may live in memory."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = lambda: 0.0
        self.store = SqliteStore(Path(":memory:"), now=self._time)

    def _time(self) -> float:
        return self._now()

    def begin(self, now: Callable[[], float]) -> None:
        self._now = now
        with self.store._file.transaction() as db:
            for table in _TABLES:
                db.execute(f"DELETE FROM {table}")

    def rewrite(self, key: str, change: Callable[[str], str]) -> None:
        """Change a document behind the product's back, as a tpukit of another version would."""
        with self.store._file.transaction() as db:
            row = db.execute("SELECT doc FROM documents WHERE key = ?", (key,)).fetchone()
            if row:
                query = "UPDATE documents SET doc = ?, revision = revision + 1 WHERE key = ?"
                db.execute(query, (change(row[0]), key))

    def close(self) -> None:
        self.store.close()
