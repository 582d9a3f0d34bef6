"""The store's shared home: a Firestore database, for drivers on many machines.

There are no locks: a write names the update time of the document that it was decided on, and the server refuses it if
that has moved. Transactions would wait for each other's locks for seconds. A write under a lease carries, in the same
batch, an update of the lease that changes nothing: it fails if the lease has changed hands, and otherwise moves no
update time (https://cloud.google.com/firestore/docs/reference/rpc/google.firestore.v1#writeresult).
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from tpukit.core.errors import Conflict, Invalid, TpukitError
from tpukit.kernel.store import Broken, Entry, Event, Holder, Kind, Lease, Page, T, codec, conflicts, mark, native
from tpukit.kernel.store.firestore_calls import TRIES, Calls, Refused
from tpukit.kernel.store.firestore_leases import FirestoreLeases
from tpukit.kernel.store.listener import Listener

_BATCH = 400
_EVENTS = "events"


class FirestoreStore(FirestoreLeases):
    def __init__(self, project: str, database: str = "(default)") -> None:
        self._lock = threading.Lock()
        self._listeners: list[Listener] = []
        self._calls = Calls(project, database, self._trouble)
        self.address = self._calls.address

    def close(self) -> None:
        with self._lock:
            listeners, self._listeners = self._listeners, []
        for listener in listeners:
            listener.stop()
        self._calls.close()

    def get(self, kind: Kind[T], key: str) -> Entry[T]:
        (snapshot,) = self._calls.read([self._document(kind, key)])
        if not snapshot.exists:
            raise conflicts.missing(kind, key)
        return codec.readable(kind, _entry(kind, snapshot))

    def create(self, kind: Kind[T], key: str, value: T, *, events: Sequence[Event] = ()) -> Entry[T]:
        doc = codec.encode(kind, value, {}, 1)
        document = self._document(kind, key)
        if kind.plain is None and kind.name != mark.COLLECTION:
            self._refuse_if_moved(self._calls.read([self._mark_document()])[0])
        batch = self._calls.client.batch()
        batch.create(document, self._stamped(native.to_native(kind, key, value, doc)))
        _note(batch, document, 1, events)
        try:
            results = self._calls.commit(batch)
        except Refused as error:
            self._calls.read([document])  # raises if the whole database is missing
            raise conflicts.taken(kind, key) from error
        return Entry(key, value, 1, doc, results[0].update_time)

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
        from google.cloud.firestore import DELETE_FIELD

        revision = entry.revision + 1
        doc = codec.encode(kind, value, entry.raw, revision)
        fields = self._stamped(native.to_native(kind, entry.key, value, doc))
        fields |= {name: DELETE_FIELD for name in entry.raw if name not in fields}
        fields = {self._calls.client.field_path(name): content for name, content in fields.items()}
        document = self._document(kind, entry.key)

        def add(batch: Any, unchanged: Any) -> None:
            batch.update(document, fields, option=unchanged)
            _note(batch, document, revision, events)

        results = self._commit(kind, entry, lease, add, release=release)
        return Entry(entry.key, value, revision, doc, results[0].update_time)

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
        lease = self.acquire(name, holder, seconds)
        if lease is None:
            return None
        try:
            return self.put(kind, entry, value, lease=lease, events=events), lease
        except Conflict:
            self.release(lease)
            return None
        except BaseException:
            # It may have been written although the response was lost: the next process should not wait for the lease.
            self.release(lease)
            raise

    def delete(self, kind: Kind[T], entry: Entry[T]) -> None:
        document = self._document(kind, entry.key)
        events = [note.reference for note in self._calls.query(document.collection(_EVENTS).select([]))]
        part = events[:_BATCH]

        def add(batch: Any, unchanged: Any) -> None:
            if len(events) > _BATCH:
                batch.update(document, {codec.REVISION: entry.revision}, option=unchanged)
            else:
                batch.delete(document, option=unchanged)
            for event in part:
                batch.delete(event)

        # A batch has a limit: the document is deleted with the last of its events.
        while len(events) > _BATCH:
            self._commit(kind, entry, None, add)
            events = events[_BATCH:]
            part = events[:_BATCH]
        self._commit(kind, entry, None, add)

    def list(
        self, kind: Kind[T], *, states: Sequence[str] = (), newest: bool = False, after: str = "", limit: int = 0
    ) -> Page[T]:
        if after and not re.match("[0-9a-f]{16} ", after):
            raise Invalid(f"{after!r} is not a valid page token", hint="start again at the first page")
        if kind.plain and not limit and not after:
            return self._all(kind, states, newest)
        queries = self._queries(kind, states, newest, after)
        # At one moment: a document that changes its state between two queries would be in both of them, or in none.
        at = {"read_time": self._calls.moment()} if len(queries) > 1 else {}
        snapshots = [
            snapshot
            for query in queries
            for snapshot in self._calls.query(query.limit(limit + 1) if limit else query, **at)
        ]
        snapshots.sort(key=lambda snapshot: str(snapshot.get(native.BY_ORDER)), reverse=newest)
        more = bool(limit) and len(snapshots) > limit
        snapshots = snapshots[:limit] if limit else snapshots
        page = codec.page(
            [_entry(kind, snapshot) for snapshot in snapshots], snapshots[-1].get(native.BY_ORDER) if more else ""
        )
        return codec.with_strangers(page, self.strangers(kind)) if states and kind.known and not after else page

    def strangers(self, kind: Kind[T]) -> Page[T]:
        from google.cloud.firestore_v1.base_query import FieldFilter

        documents = self._calls.client.collection(kind.name)
        # `not-in` leaves null out. A single field needs no index that a user must create.
        filters = [FieldFilter(kind.state, "not-in", list(kind.known)), FieldFilter(kind.state, "==", None)]
        queries = [documents.where(filter=one) for one in (filters if kind.plain else filters[:1])]
        return codec.page([_entry(kind, snapshot) for query in queries for snapshot in self._calls.query(query)])

    def keys(self, kind: Kind[T], prefix: str = "") -> frozenset[str]:
        query = self._calls.client.collection(kind.name).select([]).order_by("__name__")
        if prefix:
            low = self._document(kind, prefix)
            query = query.start_at({"__name__": low}).end_at({"__name__": low.parent.document(low.id + chr(0x10FFFF))})
        keys = [native.from_id(snapshot.id) for snapshot in self._calls.query(query)]
        return frozenset(key for key in keys if key.startswith(prefix))

    def events(self, kind: Kind[T], key: str, *, after: int = 0) -> Sequence[Event]:
        query = self._document(kind, key).collection(_EVENTS).order_by("__name__").offset(after)
        return [msgspec.convert(note.to_dict(), Event) for note in self._calls.query(query)]

    def watch(self, kind: Kind[T], wake: Callable[[], None]) -> Callable[[], None]:
        fields = [native.CHANGED, *([kind.plain.heard] if kind.plain else [])]
        started = [Listener(partial(self._calls.listen, kind.name, field), self._reachable, wake) for field in fields]
        with self._lock:
            self._listeners += started

        def end() -> None:
            with self._lock:
                self._listeners = [other for other in self._listeners if other not in started]
            for listener in started:
                listener.stop()

        return end

    def _all(self, kind: Kind[T], states: Sequence[str], newest: bool) -> Page[T]:
        """Return all documents, including those without a position in lists yet."""
        from google.cloud.firestore_v1.base_query import FieldFilter

        query = self._calls.client.collection(kind.name)
        if states:  # one field, which needs no index that a user must create
            query = query.where(filter=FieldFilter(kind.state, "in", list(dict.fromkeys(map(str, states)))))
        page = codec.page([_entry(kind, snapshot) for snapshot in self._calls.query(query)])
        order = sorted(page.entries, key=lambda entry: (codec.order(kind, entry.value), entry.key), reverse=newest)
        return replace(page, entries=order)

    def _queries(self, kind: Kind[T], states: Sequence[str], newest: bool, after: str) -> Sequence[Any]:
        from google.cloud.firestore_v1.base_query import FieldFilter

        field = native.BY_STATE if states else native.BY_ORDER
        query = self._calls.client.collection(kind.name).order_by(field, direction=_direction(newest))
        if not states:
            return [query.start_after({field: after}) if after else query]
        queries = []
        for state in dict.fromkeys(str(state) for state in states):
            bounds = FieldFilter(field, ">=", f"{state} "), FieldFilter(field, "<", f"{state}!")
            part = query.where(filter=bounds[0]).where(filter=bounds[1])
            queries.append(part.start_after({field: f"{state} {after}"}) if after else part)
        return queries

    def _commit(
        self,
        kind: Kind[T],
        entry: Entry[T],
        lease: Lease | None,
        add: Callable[[Any, Any], None],
        *,
        release: bool = False,
    ) -> Sequence[Any]:
        """Commit what `add` puts into a batch, if the document matches `entry` and the lease is held."""
        documents = [self._document(kind, entry.key)]
        if lease:
            documents.append(self._lease_document(lease.name))
        snapshots = self._calls.read(documents) if lease or entry.proof is None else []
        for _ in range(TRIES):
            proof = _proof(kind, entry, snapshots[0]) if snapshots else entry.proof
            batch = self._calls.client.batch()
            add(batch, self._calls.client.write_option(last_update_time=proof))
            if lease:
                self._add_fence(batch, lease, snapshots[1], release=release)
            try:
                return self._calls.commit(batch)
            except Refused:
                # The lease may only have been renewed by another thread, and still be held.
                snapshots = self._calls.read(documents)
        raise conflicts.outdated(kind, entry)

    def _document(self, kind: Kind[T], key: str) -> Any:
        return self._calls.client.collection(kind.name).document(native.to_id(key))

    def _stamped(self, fields: dict[str, Any]) -> dict[str, Any]:
        from google.cloud.firestore import SERVER_TIMESTAMP

        return fields | {native.CHANGED: SERVER_TIMESTAMP}

    def _reachable(self) -> bool:
        try:
            self._calls.moment()
        except TpukitError:
            return False
        return True

    def _trouble(self) -> None:
        with self._lock:
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener.trouble()


def _proof(kind: Kind[T], entry: Entry[T], snapshot: Any) -> Any:
    """Return the update time by which the server recognises `entry`."""
    same = snapshot.exists and (
        snapshot.update_time == entry.proof
        if entry.proof is not None
        else snapshot.to_dict().get(codec.REVISION) == entry.revision
    )
    if not same:
        raise conflicts.outdated(kind, entry)
    return snapshot.update_time


def _entry(kind: Kind[T], snapshot: Any) -> Entry[T] | Broken:
    key = native.from_id(snapshot.id)
    try:
        raw = native.from_native(kind, snapshot.to_dict())
        revision = int(raw.get(codec.REVISION, 0))
    except (ValueError, TypeError, RecursionError) as error:
        return Broken(key, str(error))
    return codec.read(kind, key, raw, revision, snapshot.update_time)


def _note(batch: Any, document: Any, revision: int, events: Sequence[Event]) -> None:
    # Ids come from the revision, so that retries do not duplicate events.
    for index, event in enumerate(events):
        fields = {"at": event.at, "text": codec.event_text(event.text)}
        batch.set(document.collection(_EVENTS).document(f"{revision:012d}-{index:04d}"), fields)


def _direction(newest: bool) -> str:
    from google.cloud.firestore import Query

    return str(Query.DESCENDING if newest else Query.ASCENDING)
