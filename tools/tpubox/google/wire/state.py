"""The emulator's state: JSON documents by kind and name, in one SQLite file of its folder.

A request is one transaction, so a killed emulator has done a request completely or not at all, and finds its state
again at the next start. Only one emulator may use a folder at a time; the kernel releases the lock when the process
dies.
"""

from __future__ import annotations

import fcntl
import json
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Any

from tpukit.core.errors import Conflict

Doc = dict[str, Any]

RETAINED_REQUESTS = 20_000
"""Number of the newest requests that are kept: a sandbox that runs for weeks serves millions."""

_TABLES = """
CREATE TABLE IF NOT EXISTS documents (kind TEXT, name TEXT, doc TEXT NOT NULL, PRIMARY KEY (kind, name)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS contents (name TEXT PRIMARY KEY, bytes BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS pieces (name TEXT, start INTEGER, bytes BLOB NOT NULL, PRIMARY KEY (name, start));
CREATE TABLE IF NOT EXISTS requests (number INTEGER PRIMARY KEY, doc TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS counter (value INTEGER NOT NULL);
CREATE INDEX IF NOT EXISTS held ON documents (
    kind, doc ->> '$._holds.zone', doc ->> '$._holds.generation', doc ->> '$._holds.spot',
    doc ->> '$._holds.reservation', doc ->> '$._holds.up', doc ->> '$._holds.chips'
) WHERE iif(kind IN ('pool', 'queued', 'vm'), doc ->> '$._holds.chips', 0) > 0;
CREATE INDEX IF NOT EXISTS pool_sizes ON documents (
    name, doc ->> '$.maxPodsConstraint.maxPodsPerNode', doc ->> '$._size' * json_array_length(doc -> '$.locations')
) WHERE kind = 'pool';
INSERT INTO counter SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM counter);
"""


_HELD = """
SELECT doc ->> '$._holds.zone' AS zone, doc ->> '$._holds.generation' AS generation, doc ->> '$._holds.spot' AS spot,
    doc ->> '$._holds.reservation' AS reservation, doc ->> '$._holds.up' AS up, sum(doc ->> '$._holds.chips')
FROM documents INDEXED BY held
WHERE kind = ? AND iif(kind IN ('pool', 'queued', 'vm'), doc ->> '$._holds.chips', 0) > 0 GROUP BY 1, 2, 3, 4, 5
"""
"""Query of held chips.

The index leaves out other kinds by name: their documents may not be valid JSON for SQLite (NaN).
"""
_SIZES = """
SELECT doc ->> '$.maxPodsConstraint.maxPodsPerNode', sum(doc ->> '$._size' * json_array_length(doc -> '$.locations'))
FROM documents INDEXED BY pool_sizes WHERE kind = 'pool' AND name > ? AND name < ? GROUP BY 1
"""


class State:
    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        folder.chmod(0o700)
        self._handle = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(self._handle)
            raise Conflict(f"another emulator works in {folder}", hint="give this one a folder of its own") from error
        self._lock = threading.RLock()
        self._depth = 0
        self._db = sqlite3.connect(folder / "state.db", isolation_level=None, check_same_thread=False)
        self._db.execute("PRAGMA journal_mode = WAL")
        # Safe when a process is killed; only a power loss could lose data.
        self._db.execute("PRAGMA synchronous = OFF")
        self._db.executescript(_TABLES)

    def close(self) -> None:
        with self._lock:
            self._db.close()
            os.close(self._handle)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Run all or nothing, one thread at a time. A nested transaction is part of the outer one."""
        with self._lock:
            if self._depth == 0:
                self._db.execute("BEGIN IMMEDIATE")
            self._depth += 1
            try:
                yield
            except BaseException:
                if self._depth == 1:
                    self._db.execute("ROLLBACK")
                raise
            else:
                if self._depth == 1:
                    self._db.execute("COMMIT")
            finally:
                self._depth -= 1

    def get(self, kind: str, name: str) -> Doc | None:
        row = self._one("SELECT doc FROM documents WHERE kind = ? AND name = ?", kind, name)
        return json.loads(row[0]) if row else None

    def all(self, kind: str, prefix: str = "") -> dict[str, Doc]:
        """Return the documents with a name prefix, by name and in its order."""
        return {name: json.loads(doc) for name, doc in self._begin(kind, prefix)}

    def each(self, kind: str) -> Iterator[Doc]:
        """Yield the documents in the order of their names, read one by one, so that an early stop reads no more."""
        for _, doc in self._begin(kind, ""):
            yield json.loads(doc)

    def held(self, kind: str) -> list[Doc]:
        """Return the sums of what documents of that kind hold, from an index: no document is read."""
        with self._lock:
            rows = self._db.execute(_HELD, (kind,)).fetchall()
        return [
            {"zone": zone, "generation": of, "spot": bool(spot), "reservation": name, "up": bool(up), "chips": chips}
            for zone, of, spot, name, up, chips in rows
        ]

    def node_counts(self, cluster: str) -> list[tuple[int | None, int]]:
        """Return the number of nodes of a cluster's pools, by the limit of Pods per node, from an index."""
        with self._lock:
            return self._db.execute(_SIZES, (f"{cluster}/", f"{cluster}0")).fetchall()  # 0 is the character after /

    def first(self, kind: str, start: str, prefix: str) -> str | None:
        """Return the first name at or after `start`, if it has the prefix."""
        row = self._one("SELECT name FROM documents WHERE kind = ? AND name >= ? ORDER BY name LIMIT 1", kind, start)
        return row[0] if row and row[0].startswith(prefix) else None

    def put(self, kind: str, name: str, doc: Doc) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO documents VALUES (?, ?, ?)", (kind, name, json.dumps(doc)))

    def delete(self, kind: str, name: str) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM documents WHERE kind = ? AND name = ?", (kind, name))

    def kinds(self) -> list[str]:
        with self._lock:
            return [kind for (kind,) in self._db.execute("SELECT DISTINCT kind FROM documents ORDER BY kind")]

    def content(self, name: str, start: int = 0, length: int | None = None) -> bytes:
        most = (1 << 31) - 1 if length is None else length  # SQLite's maximum
        row = self._one("SELECT substr(bytes, ?, ?) FROM contents WHERE name = ?", start + 1, most, name)
        return bytes(row[0]) if row and row[0] else b""

    def put_content(self, name: str, content: bytes) -> None:
        with self.transaction():
            self._db.execute("INSERT OR REPLACE INTO contents VALUES (?, ?)", (name, content))

    def delete_content(self, name: str) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM contents WHERE name = ?", (name,))

    def pieces_end(self, name: str) -> int:
        """Return the total size of the pieces of that name."""
        row = self._one("SELECT start + length(bytes) FROM pieces WHERE name = ? ORDER BY start DESC LIMIT 1", name)
        return int(row[0]) if row else 0

    def put_piece(self, name: str, start: int, content: bytes) -> None:
        """Write from `start` on, at or before the current end; later content is deleted.

        Each piece is a row of its own: content in one growing row would be rewritten with every piece.
        """
        with self.transaction():
            self._db.execute("DELETE FROM pieces WHERE name = ? AND start >= ?", (name, start))
            # Only the last remaining piece can extend beyond.
            self._db.execute(
                "UPDATE pieces SET bytes = substr(bytes, 1, ?1 - start) WHERE name = ?2 AND start + length(bytes) > ?1 "
                "AND start = (SELECT max(start) FROM pieces WHERE name = ?2)",
                (start, name),
            )
            if content:
                self._db.execute("INSERT INTO pieces VALUES (?, ?, ?)", (name, start, content))

    def pieces(self, name: str) -> bytes:
        with self._lock:
            rows = self._db.execute("SELECT bytes FROM pieces WHERE name = ? ORDER BY start", (name,))
            return b"".join(piece for (piece,) in rows)

    def delete_pieces(self, name: str) -> None:
        self.put_piece(name, 0, b"")

    def note(self, request: Doc) -> None:
        with self.transaction():
            newest = self._db.execute("INSERT INTO requests (doc) VALUES (?)", (json.dumps(request),)).lastrowid or 0
            self._db.execute("DELETE FROM requests WHERE number <= ?", (newest - RETAINED_REQUESTS,))

    def changes(self) -> int:
        """Return a number that grows with every change."""
        with self._lock:
            return self._db.total_changes

    def requests(self) -> list[Doc]:
        with self._lock:
            return [json.loads(doc) for (doc,) in self._db.execute("SELECT doc FROM requests ORDER BY number")]

    def forget_requests(self) -> None:
        with self.transaction():
            self._db.execute("DELETE FROM requests")

    def next(self) -> int:
        """Return a unique number."""
        with self.transaction():
            row = self._one("UPDATE counter SET value = value + 1 RETURNING value")
        assert row is not None
        return int(row[0])

    def _one(self, query: str, *values: object) -> tuple[Any, ...] | None:
        with self._lock:
            found: tuple[Any, ...] | None = self._db.execute(query, values).fetchone()
            return found

    def _begin(self, kind: str, prefix: str) -> Iterator[tuple[str, str]]:
        query = "SELECT name, doc FROM documents WHERE kind = ? AND name >= ? ORDER BY name"
        with self._lock:
            # Names with the same prefix are adjacent. SQLite's own text functions would stop at a zero byte.
            rows = self._db.execute(query, (kind, prefix))
            yield from takewhile(lambda row: row[0].startswith(prefix), rows)
