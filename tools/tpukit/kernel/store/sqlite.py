"""The store's embedded home: one SQLite file, shared by every `tpu` on this machine.

WAL lets readers continue during a write; every write takes the write lock first (BEGIN IMMEDIATE), because a read that
turns into a write fails under contention no matter how long it waits. Writes survive every crash of a program. A record
that is followed by acts which cost money also survives a loss of power: its write waits for the disk
(https://www.sqlite.org/pragma.html#pragma_synchronous). Leases and the queue's documents do not: after a loss of power
their last transactions may be missing, each as a whole; no process holds a lease then, and code runs again.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any, Generic

import msgspec

from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Conflict
from tpukit.kernel.store import (
    LAPSED_SECONDS,
    PRUNED,
    Broken,
    Entry,
    Event,
    Holder,
    Kind,
    Lease,
    Page,
    T,
    codec,
    conflicts,
    mark,
)
from tpukit.kernel.store.file import File
from tpukit.kernel.store.process import is_dead

POLL_SECONDS = 0.2


class SqliteStore:
    address = "sqlite"

    def __init__(self, path: Path, now: Callable[[], float] = SYSTEM.now) -> None:
        self.path = path
        self.now = now
        self._file = File(path)

    def close(self) -> None:
        self._file.close()

    def get(self, kind: Kind[T], key: str) -> Entry[T]:
        with self._file.connection() as db:
            row = db.execute(f"{_SELECT} WHERE collection = ? AND key = ?", (kind.name, key)).fetchone()
        if row is None:
            raise conflicts.missing(kind, key)
        return codec.readable(kind, _entry(kind, row))

    def create(self, kind: Kind[T], key: str, value: T, *, events: Sequence[Event] = ()) -> Entry[T]:
        doc = codec.encode(kind, value, {}, 1)
        with self._file.transaction(durable=kind.plain is None) as db:
            self._refuse_if_moved(db, kind.name)
            try:
                number = db.execute(
                    "INSERT INTO documents (collection, key, revision, state, sort, doc) VALUES (?, ?, 1, ?, ?, ?)",
                    (kind.name, key, codec.state(kind, value), codec.order(kind, value), codec.to_json(doc)),
                ).lastrowid
            except sqlite3.IntegrityError as error:
                raise conflicts.taken(kind, key) from error
            _note(db, kind.name, key, events)
        return Entry(key, value, 1, doc, number)

    def put(
        self,
        kind: Kind[T],
        entry: Entry[T],
        value: T,
        *,
        lease: Lease | None = None,
        release: bool = False,
        events: Sequence[Event] = (),
    ) -> Entry[T]:
        updated = _next(kind, entry, value)
        with self._file.transaction(durable=kind.plain is None) as db:
            self._refuse_if_moved(db, kind.name)
            if lease:
                self._check(db, lease)
            _update(db, kind, entry, updated, events)
            if lease and release:
                db.execute(_RELEASE, (lease.name, lease.token))
        return updated.entry

    def claim(
        self,
        kind: Kind[T],
        entry: Entry[T],
        value: T,
        name: str,
        holder: Holder,
        seconds: float,
        *,
        events: Sequence[Event] = (),
    ) -> tuple[Entry[T], Lease] | None:
        with self._file.connection() as db:  # reads do not wait, and show most latecomers that they are too late
            if db.execute(_IS_SAME, _same(kind, entry)).fetchone() is None:
                return None
        updated = _next(kind, entry, value)
        try:
            with self._file.transaction(durable=kind.plain is None) as db:
                lease = self._take(db, name, holder, seconds)
                if lease is None:
                    return None
                _update(db, kind, entry, updated, events)
                return updated.entry, lease
        except Conflict:
            return None

    def delete(self, kind: Kind[T], entry: Entry[T]) -> None:
        with self._file.transaction() as db:
            if not db.execute(_DELETE, _same(kind, entry)).rowcount:
                raise conflicts.outdated(kind, entry)
            db.execute("DELETE FROM events WHERE collection = ? AND key = ?", (kind.name, entry.key))
            _note(db, kind.name, entry.key, ())

    def list(
        self, kind: Kind[T], *, states: Sequence[str] = (), newest: bool = False, after: str = "", limit: int = 0
    ) -> Page[T]:
        where, values = "collection = ?", [kind.name]
        later: list[Any] = []
        if after:
            where += f" AND (sort, key) {'<' if newest else '>'} (?, ?)"
            later = [*codec.position(after)]
        # One branch for each state: SQLite merges them in order, where `state IN` would sort all rows.
        wanted = [str(state) for state in dict.fromkeys(states)]
        query = " UNION ALL ".join(
            [f"{_SELECT} WHERE {where}{' AND state = ?' if wanted else ''}"] * (len(wanted) or 1)
        )
        parts = [[*values, *later, *([state] if wanted else [])] for state in wanted or [""]]
        direction = "DESC" if newest else "ASC"
        with self._file.connection() as db:
            rows = db.execute(
                f"{query} ORDER BY sort {direction}, key {direction} LIMIT ?",
                [*(value for part in parts for value in part), limit + 1 if limit else -1],
            ).fetchall()
        more = bool(limit) and len(rows) > limit
        rows = rows[:limit] if limit else rows
        page = codec.page(
            [_entry(kind, row) for row in rows], codec.cursor(rows[-1][_SORT], rows[-1][_KEY]) if more else ""
        )
        return codec.with_strangers(page, self.strangers(kind)) if wanted and kind.known and not after else page

    def strangers(self, kind: Kind[T]) -> Page[T]:
        # Ranges between known states, by the index: nothing is read if there is no other state.
        known = sorted(kind.known)
        bounds = [("state < ?", known[:1]), *(("state > ? AND state < ?", [*pair]) for pair in pairwise(known))]
        bounds.append(("state > ?", known[-1:]))
        query = " UNION ALL ".join(f"{_SELECT} WHERE collection = ? AND {bound}" for bound, _ in bounds)
        with self._file.connection() as db:
            rows = db.execute(query, [value for _, values in bounds for value in (kind.name, *values)]).fetchall()
        return codec.page([_entry(kind, row) for row in rows])

    def keys(self, kind: Kind[T], prefix: str = "") -> frozenset[str]:
        query = "SELECT key FROM documents WHERE collection = ? AND substr(key, 1, ?) = ?"
        with self._file.connection() as db:
            return frozenset(key for (key,) in db.execute(query, (kind.name, len(prefix), prefix)))

    def events(self, kind: Kind[T], key: str, *, after: int = 0) -> Sequence[Event]:
        query = "SELECT at, text FROM events WHERE collection = ? AND key = ? AND seq > ? ORDER BY seq"
        with self._file.connection() as db:
            return [Event(at, text) for at, text in db.execute(query, (kind.name, key, after))]

    def acquire(self, name: str, holder: Holder, seconds: float) -> Lease | None:
        with self._file.connection() as db:  # without the write lock: most callers find the lease held
            row = db.execute(f"{_LEASES} WHERE name = ?", (name,)).fetchone()
        now = self.now()
        if row and row[_ENDS] > now and not _ahead(row, now):
            held = _lease(row)
            if held.holder.name != holder.name and not is_dead(held.holder):
                return None
        with self._file.transaction() as db:
            return self._take(db, name, holder, seconds)

    def _take(self, db: sqlite3.Connection, name: str, holder: Holder, seconds: float) -> Lease | None:
        self._refuse_if_moved(db)
        held = self._held(db, name)
        if held and held.holder.name == holder.name:
            return _prolong(db, held, self.now(), seconds)
        if held and not is_dead(held.holder):
            return None
        db.execute("DELETE FROM leases WHERE name = ?", (name,))
        ends = self.now() + seconds
        token = db.execute(
            "INSERT INTO leases (name, holder, seconds, ends) VALUES (?, ?, ?, ?)",
            (name, msgspec.json.encode(holder).decode(), seconds, ends),
        ).lastrowid
        assert token
        return Lease(name, holder, ends, token)

    def renew(self, lease: Lease, seconds: float) -> Lease:
        with self._file.transaction() as db:
            row = db.execute(f"{_LEASES} WHERE name = ? AND token = ?", (lease.name, lease.token)).fetchone()
            if row is None:
                raise conflicts.lost(lease)
            return _prolong(db, lease, self.now(), seconds)

    def release(self, lease: Lease) -> None:
        with self._file.transaction() as db:
            db.execute(_RELEASE, (lease.name, lease.token))

    def revoke(self) -> None:
        with self._file.transaction() as db:
            db.execute("DELETE FROM leases")

    def prune(self) -> int:
        query = "DELETE FROM leases WHERE token IN (SELECT token FROM leases WHERE ends < ? ORDER BY ends LIMIT ?)"
        with self._file.transaction() as db:
            return db.execute(query, (self.now() - LAPSED_SECONDS, PRUNED)).rowcount

    def lease(self, name: str) -> Lease | None:
        return next(iter(self._live("WHERE name = ?", name)), None)

    def leases(self) -> Sequence[Lease]:
        return self._live("ORDER BY name")

    def _live(self, which: str, *values: str) -> Sequence[Lease]:
        with self._file.connection() as db:
            rows = db.execute(f"{_LEASES} {which}", values).fetchall()
        now = self.now()
        if any(_ahead(row, now) for row in rows):
            with self._file.transaction() as db:
                _shorten(db, now)
                rows = db.execute(f"{_LEASES} {which}", values).fetchall()
        held = [_lease(row) for row in rows if row[_ENDS] > now]
        return [lease for lease in held if not is_dead(lease.holder)]

    def watch(self, kind: Kind[T], wake: Callable[[], None]) -> Callable[[], None]:
        query = "SELECT number FROM changes WHERE collection = ?"
        return self._file.watch(lambda db: db.execute(query, (kind.name,)).fetchone(), wake, POLL_SECONDS)

    def _held(self, db: sqlite3.Connection, name: str) -> Lease | None:
        """Return the current lease, even of a dead holder; None if it lapsed or is free."""
        now = self.now()
        query = f"{_LEASES} WHERE name = ?"
        row = db.execute(query, (name,)).fetchone()
        if row and _ahead(row, now):
            _shorten(db, now)
            row = db.execute(query, (name,)).fetchone()
        return _lease(row) if row and row[_ENDS] > now else None

    def _refuse_if_moved(self, db: sqlite3.Connection, collection: str = "") -> None:
        query = "SELECT state FROM documents WHERE collection = ? AND key = ?"
        row = db.execute(query, (mark.COLLECTION, mark.KEY)).fetchone()
        if row and row[0] and collection != mark.COLLECTION:
            raise mark.moved(self.address, row[0])

    def _check(self, db: sqlite3.Connection, lease: Lease) -> None:
        held = self._held(db, lease.name)
        if held is None or held.token != lease.token:
            raise conflicts.lost(lease, held)


_SELECT = "SELECT key, revision, number, sort, doc FROM documents"
_KEY, _SORT = 0, 3
_SAME = "collection = ? AND key = ? AND revision = ? AND (number = ? OR ? IS NULL)"
_UPDATE = f"UPDATE documents SET revision = ?, state = ?, sort = ?, doc = ? WHERE {_SAME}"  # noqa: S608
_IS_SAME = f"SELECT 1 FROM documents WHERE {_SAME}"  # noqa: S608
_DELETE = f"DELETE FROM documents WHERE {_SAME}"  # noqa: S608
_RELEASE = "DELETE FROM leases WHERE name = ? AND token = ?"
_EVENT = (
    "INSERT INTO events (collection, key, seq, at, text)"
    " SELECT ?, ?, ifnull(max(seq), 0) + 1, ?, ? FROM events WHERE collection = ? AND key = ?"
)
_LEASES = "SELECT name, holder, ends, token, seconds FROM leases"
_NAME, _HOLDER, _ENDS, _TOKEN, _SECONDS = range(5)


def _same(kind: Kind[T], entry: Entry[T]) -> tuple[Any, ...]:
    return kind.name, entry.key, entry.revision, entry.proof, entry.proof


@dataclass(frozen=True, slots=True)
class _Next(Generic[T]):
    """The content of a write, prepared before the write lock is taken, which blocks all other writers."""

    entry: Entry[T]
    fields: tuple[Any, ...]


def _next(kind: Kind[T], entry: Entry[T], value: T) -> _Next[T]:
    revision = entry.revision + 1
    doc = codec.encode(kind, value, entry.raw, revision)
    fields = (revision, codec.state(kind, value), codec.order(kind, value), codec.to_json(doc))
    return _Next(Entry(entry.key, value, revision, doc, entry.proof), fields)


def _update(db: sqlite3.Connection, kind: Kind[T], entry: Entry[T], updated: _Next[T], events: Sequence[Event]) -> None:
    if not db.execute(_UPDATE, (*updated.fields, *_same(kind, entry))).rowcount:
        raise conflicts.outdated(kind, entry)
    _note(db, kind.name, entry.key, events)


def _entry(kind: Kind[T], row: Sequence[Any]) -> Entry[T] | Broken:
    key, revision, number, _, doc = row
    try:
        raw = codec.from_json(doc)
    except (ValueError, RecursionError) as error:
        return Broken(key, f"it is not JSON: {error}")
    return codec.read(kind, key, raw, revision, number)


def _note(db: sqlite3.Connection, collection: str, key: str, events: Sequence[Event]) -> None:
    """Record events of a change, and the change itself for watches."""
    for event in events:
        db.execute(_EVENT, (collection, key, event.at, codec.event_text(event.text), collection, key))
    count = "INSERT INTO changes VALUES (?, 1) ON CONFLICT DO UPDATE SET number = number + 1"
    db.execute(count, (collection,))


def _lease(row: Sequence[Any]) -> Lease:
    return Lease(row[_NAME], msgspec.json.decode(row[_HOLDER], type=Holder), row[_ENDS], row[_TOKEN])


def _ahead(row: Sequence[Any], now: float) -> bool:
    """Report whether the lease ends too late because the clock was set back. A second of rounding is allowed."""
    return bool(row[_ENDS] - now > row[_SECONDS] + 1.0)


def _shorten(db: sqlite3.Connection, now: float) -> None:
    """Limit all leases to their requested length."""
    db.execute("UPDATE leases SET ends = ? + seconds WHERE ends - ? > seconds + 1.0", (now, now))


def _prolong(db: sqlite3.Connection, lease: Lease, now: float, seconds: float) -> Lease:
    db.execute("UPDATE leases SET ends = ?, seconds = ? WHERE token = ?", (now + seconds, seconds, lease.token))
    return msgspec.structs.replace(lease, ends=now + seconds)
