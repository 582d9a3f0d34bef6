"""Backends of the simulated store: the real SQLite and Firestore stores in memory, emptied for each world."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from support.simulated_firestore import Client, Server
from tpukit.kernel.store import Kind, codec
from tpukit.kernel.store.sqlite import SqliteStore

_TABLES = ("documents", "leases", "changes", "events", "sqlite_sequence")
KINDS = ("sqlite", "firestore")


class SqliteHome:
    """A SQLite store. One thread needs only one connection, so the file can be in memory."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.store = SqliteStore(Path(":memory:"), now=now)
        self.store.address = "simulated://sqlite"

    def empty(self) -> None:
        with self.store._file.transaction() as db:
            for table in _TABLES:
                db.execute(f"DELETE FROM {table}")

    def rewrite(self, key: str, change: Callable[[str], str]) -> None:
        with self.store._file.transaction() as db:
            row = db.execute("SELECT doc FROM documents WHERE key = ?", (key,)).fetchone()
            if row:
                query = "UPDATE documents SET doc = ?, revision = revision + 1 WHERE key = ?"
                db.execute(query, (change(row[0]), key))

    def insert(self, kind: Kind[Any], key: str, doc: str) -> None:
        with self.store._file.transaction() as db:
            query = "INSERT INTO documents (collection, key, revision, state, sort, doc) VALUES (?, ?, 1, ?, ?, ?)"
            db.execute(query, (kind.name, key, json.loads(doc).get(kind.state) or "", -1e12, doc))

    def leases(self) -> int:
        with self.store._file.transaction() as db:
            return int(db.execute("SELECT count(*) FROM leases").fetchone()[0])


class FirestoreHome:
    """The real client with a simulated database. Other processes may run between any two of its requests."""

    def __init__(self, now: Callable[[], float], pause: Callable[[], None]) -> None:
        from google.cloud import firestore

        from tpukit.kernel.store import firestore as store
        from tpukit.kernel.store import firestore_calls, pacing
        from tpukit.kernel.store.firestore import FirestoreStore

        self.server = Server(now, before=lambda call: pause())
        clock = SimpleNamespace(monotonic=now, sleep=lambda seconds: None)
        self._changed = [
            (owner, name, getattr(owner, name))
            for owner, name in (
                (firestore, "Client"),
                (firestore_calls, "_connect"),
                (firestore_calls, "SYSTEM"),
                (firestore_calls, "random"),
                (firestore_calls, "TokenBucket"),
                (store, "_entry"),
            )
        ]
        firestore.Client = lambda project, database: Client(self.server, project)  # type: ignore[assignment,misc]
        firestore_calls._connect = lambda made: None
        firestore_calls.SYSTEM = clock  # type: ignore[assignment]
        firestore_calls.random = random.Random(1)  # type: ignore[assignment]
        firestore_calls.TokenBucket = lambda rate: pacing.TokenBucket(rate, now=now, sleep=clock.sleep)  # type: ignore[assignment,misc]
        self._entries: dict[tuple[str, str], tuple[Any, Any]] = {}
        self._decode = store._entry
        store._entry = self._entry
        self.store = FirestoreStore("simulated-1")

    def empty(self) -> None:
        self._entries.clear()
        self.server.documents = {}
        self.server._ticks = 0
        self.store._calls._clock = (0.0, float("-inf"))

    def rewrite(self, key: str, change: Callable[[str], str]) -> None:
        path = f"jobs/{key}"
        if stored := self.server.documents.get(path):
            times = {name: value for name, value in stored.fields.items() if isinstance(value, datetime)}
            plain = {name: value for name, value in stored.fields.items() if name not in times}
            texts = {name: json.loads(plain[name]) for name in plain.get("_json", ())}
            changed = json.loads(change(json.dumps({**plain, **texts})))
            changed |= {name: codec.to_json(changed[name]) for name in texts}
            changed[codec.REVISION] = changed[codec.REVISION] + 1
            self.server.documents[path] = type(stored)({**changed, **times}, self.server.moment())

    def insert(self, kind: Kind[Any], key: str, doc: str) -> None:
        from support.simulated_firestore import Stored

        self.server.documents[f"{kind.name}/{key}"] = Stored(json.loads(doc), self.server.moment())

    def leases(self) -> int:
        return sum(path.startswith("leases/") for path in self.server.documents)

    def close(self) -> None:
        for owner, name, value in self._changed:
            setattr(owner, name, value)

    def _entry(self, kind: Kind[Any], snapshot: Any) -> Any:
        """Return the decoded document; drivers list the same ones in every round."""
        place = kind.name, snapshot.id
        stored, entry = self._entries.get(place, (None, None))
        if stored is not snapshot.stored:
            entry = self._decode(kind, snapshot)
            self._entries[place] = snapshot.stored, entry
        return entry


class Home:
    """The current backend of a world's store, and the one to which a person may move it."""

    def __init__(self) -> None:
        self._now: Callable[[], float] = lambda: 0.0
        self._pause: Callable[[], None] = lambda: None
        self._made: dict[str, SqliteHome | FirestoreHome] = {}
        self.kind = "sqlite"
        self.begin(self._now)

    def begin(self, now: Callable[[], float], kind: str = "sqlite", pause: Callable[[], None] = lambda: None) -> None:
        """Empty both backends for a new world. `pause` lets other processes run for a moment."""
        self._now, self._pause, self.kind = now, pause, kind
        for made in self._made.values():
            made.empty()
        self.sender = self._of(kind).store.address

    @property
    def store(self) -> Any:
        return self._of(self.kind).store

    def of(self, address: str) -> Any:
        """Return the store with that address."""
        return next(one for one in (self._of(kind).store for kind in KINDS) if one.address == address)

    def elsewhere(self) -> Any:
        """Return the store of the other backend."""
        return self._of(KINDS[self.kind == "sqlite"]).store

    def moved(self) -> None:
        self.kind = KINDS[self.kind == "sqlite"]

    def rewrite(self, key: str, change: Callable[[str], str]) -> None:
        """Change a document without the store, as another version of tpukit does."""
        self._of(self.kind).rewrite(key, change)

    def insert(self, kind: Kind[Any], key: str, doc: str) -> None:
        """Write a document as a program without tpukit does."""
        self._of(self.kind).insert(kind, key, doc)

    def leases(self) -> int:
        """Return the number of stored leases, including lapsed ones."""
        return self._of(self.kind).leases()

    def close(self) -> None:
        for made in self._made.values():
            made.store.close()
            if isinstance(made, FirestoreHome):
                made.close()

    def _time(self) -> float:
        return self._now()

    def _rest(self) -> None:
        self._pause()

    def _of(self, kind: str) -> SqliteHome | FirestoreHome:
        if kind not in self._made:
            home = SqliteHome(self._time) if kind == "sqlite" else FirestoreHome(self._time, self._rest)
            self._made[kind] = home
            self._made[kind].empty()
        return self._made[kind]
