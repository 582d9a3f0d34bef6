"""Firestore in memory: documents with update times, batches with preconditions, and the queries of this product.

It refuses the same input as Firestore (https://firebase.google.com/docs/firestore/quotas): documents above 1 MiB, lists
in lists, integers beyond 64 bits, names between double underscores, documents with more than 40,000 entries in indexes.
tests/cluster checks the same with Google's own emulator; this one needs no Java, and works with a manual clock.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

import pytest
from google.api_core import exceptions
from google.cloud.firestore import DELETE_FIELD, SERVER_TIMESTAMP

LIMIT = 1_048_576
INDEX_ENTRIES = 40_000


@dataclass
class Stored:
    fields: dict[str, Any]
    updated: datetime


@dataclass
class Server:
    """All documents of one database, by path. `before` is called with the name of each call before it is served."""

    now: Callable[[], float]
    documents: dict[str, Stored] = field(default_factory=dict)
    before: Callable[[str], None] = lambda call: None
    after: Callable[[str], None] = lambda call: None  # raises if the answer is lost
    _ticks: int = 0
    _lock: threading.RLock = field(default_factory=threading.RLock)

    def moment(self) -> datetime:
        """Return the current time, unique for each call."""
        with self._lock:
            self._ticks += 1
            return datetime.fromtimestamp(self.now() + self._ticks * 1e-6, UTC)

    def commit(self, writes: Sequence[Write]) -> list[Any]:
        self.before("commit")
        with self._lock:
            results = self._commit(writes)
        self.after("commit")
        return results

    def _commit(self, writes: Sequence[Write]) -> list[Any]:
        at, staged = self.moment(), dict(self.documents)
        for write in writes:
            there = staged.get(write.path)
            if write.kind == "create" and there:
                raise exceptions.AlreadyExists(write.path)
            if write.kind == "update" and there is None:
                raise exceptions.NotFound(write.path)
            if write.expected is not None and (there is None or there.updated != write.expected):
                raise exceptions.FailedPrecondition(write.path)
            if write.kind == "delete":
                staged.pop(write.path, None)
                continue
            before = there.fields if there and write.kind == "update" else {}
            after = {name: value for name, value in {**before, **write.fields}.items() if value is not DELETE_FIELD}
            after = {name: at if value is SERVER_TIMESTAMP else _copied(value) for name, value in after.items()}
            _check(write.path, after)
            unchanged = there is not None and after == there.fields
            staged[write.path] = Stored(after, there.updated if there and unchanged else at)
        self.documents = staged
        return [Result(staged[write.path].updated if write.path in staged else at) for write in writes]


@dataclass(frozen=True)
class Result:
    update_time: datetime


@dataclass(frozen=True)
class Write:
    kind: str
    path: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    expected: datetime | None = None


class Client:
    def __init__(self, server: Server, project: str = "simulated") -> None:
        self.server, self.project, self._database = server, project, "(default)"
        self._rpc_metadata: Any = ()
        self._firestore_api = self
        self.transport = self

    def close(self) -> None: ...

    def listen(self, *args: Any, **options: Any) -> Any:
        raise ConnectionError("the simulation has no listeners")

    def collection(self, name: str) -> Query:
        return Query(self, name)

    def batch(self) -> Batch:
        return Batch(self.server)

    @staticmethod
    def field_path(name: str) -> str:
        return f"`{name}`"

    @staticmethod
    def write_option(*, last_update_time: datetime) -> datetime:
        return last_update_time

    def get_all(self, documents: Sequence[Document], **options: Any) -> Iterator[Snapshot]:
        self.server.before("get_all")
        at = self.server.moment()
        return iter([Snapshot(one, self.server.documents.get(one.path), at) for one in documents])


class Batch:
    def __init__(self, server: Server) -> None:
        self._server, self._writes = server, list[Write]()

    def __len__(self) -> int:
        return len(self._writes)

    def create(self, document: Document, fields: Mapping[str, Any]) -> None:
        self._writes.append(Write("create", document.path, fields))

    def set(self, document: Document, fields: Mapping[str, Any]) -> None:
        self._writes.append(Write("set", document.path, fields))

    def update(self, document: Document, fields: Mapping[str, Any], option: datetime | None = None) -> None:
        self._writes.append(Write("update", document.path, {n.strip("`"): v for n, v in fields.items()}, option))

    def delete(self, document: Document, option: datetime | None = None) -> None:
        self._writes.append(Write("delete", document.path, {}, option))

    def commit(self, **options: Any) -> list[Any]:
        if len(self._writes) > 500:
            raise exceptions.InvalidArgument("maximum 500 writes allowed per request")
        return self._server.commit(self._writes)


@dataclass(frozen=True)
class Document:
    client: Client
    path: str

    @property
    def id(self) -> str:
        return self.path.rpartition("/")[2]

    @property
    def parent(self) -> Query:
        return Query(self.client, self.path.rpartition("/")[0])

    def collection(self, name: str) -> Query:
        return Query(self.client, f"{self.path}/{name}")


@dataclass(frozen=True)
class Snapshot:
    reference: Document
    stored: Stored | None
    read_time: datetime

    @property
    def exists(self) -> bool:
        return self.stored is not None

    @property
    def id(self) -> str:
        return self.reference.id

    @property
    def update_time(self) -> datetime | None:
        return self.stored.updated if self.stored else None

    def to_dict(self) -> Any:
        return _copied(self.stored.fields) if self.stored else None

    def get(self, name: str) -> Any:
        assert self.stored
        return self.stored.fields[name]


@dataclass(frozen=True)
class Query:
    client: Client
    path: str
    filters: tuple[Any, ...] = ()
    order: tuple[str, bool] | None = None
    most: int = -1
    skipped: int = 0

    def document(self, name: str) -> Document:
        return Document(self.client, f"{self.path}/{name}")

    def where(self, *, filter: Any) -> Query:  # noqa: A002
        return self._with(filters=(*self.filters, (filter.field_path, filter.op_string, filter.value)))

    def select(self, names: Sequence[str]) -> Query:
        return self

    def order_by(self, name: str, direction: str = "ASCENDING") -> Query:
        return self._with(order=(name, direction == "DESCENDING"))

    def limit(self, most: int) -> Query:
        return self._with(most=most)

    def offset(self, count: int) -> Query:
        return self._with(skipped=count)

    def start_at(self, at: Mapping[str, Any]) -> Query:
        return self._bound(at, ">=", "<=")

    def start_after(self, at: Mapping[str, Any]) -> Query:
        return self._bound(at, ">", "<")

    def end_at(self, at: Mapping[str, Any]) -> Query:
        return self._bound(at, "<=", ">=")

    def _bound(self, at: Mapping[str, Any], rising: str, falling: str) -> Query:
        ((name, value),) = at.items()
        assert self.order
        return self._with(filters=(*self.filters, (name, falling if self.order[1] else rising, value)))

    def _with(self, **changes: Any) -> Query:
        made = copy(self)
        made.__dict__.update(changes)
        return made

    def stream(self, **options: Any) -> Iterator[Snapshot]:
        self.client.server.before("query")
        at, depth = self.client.server.moment(), self.path.count("/") + 1
        found = [
            Snapshot(Document(self.client, path), stored, at)
            for path, stored in self.client.server.documents.items()
            if path.startswith(f"{self.path}/") and path.count("/") == depth and self._fits(path, stored)
        ]
        name, falling = self.order or ("__name__", False)
        found.sort(key=lambda one: one.id if name == "__name__" else _key(one.get(name)), reverse=falling)
        return iter(found[self.skipped :][: self.most if self.most >= 0 else None])

    def _fits(self, path: str, stored: Stored) -> bool:
        if self.order and self.order[0] != "__name__" and self.order[0] not in stored.fields:
            return False
        return all(_holds(path, stored.fields, *one) for one in self.filters)


def _holds(path: str, fields: Mapping[str, Any], name: str, operator: str, value: Any) -> bool:
    if name == "__name__":
        here, value = path.rpartition("/")[2], value.id
    elif name not in fields:
        return False
    else:
        here = fields[name]
    if getattr(operator, "name", "") == "IS_NULL":  # the client's filter for `== None`
        return here is None
    if operator == "in":
        return here in value
    if operator == "not-in":
        return here is not None and here not in value
    if operator == "==":
        return bool(here == value)
    if _key(here)[0] != _key(value)[0]:  # ranges stay within one type
        return False
    low, high = _key(here), _key(value)
    return bool({"<": low < high, "<=": low <= high, ">": low > high, ">=": low >= high}[operator])


def _key(value: Any) -> tuple[Any, ...]:
    """Return a sort key.

    Order of types: https://firebase.google.com/docs/firestore/manage-data/data-types#value_type_ordering
    """
    if value is None or isinstance(value, bool):
        return (int(value is not None), bool(value))
    if isinstance(value, int | float):
        return (2, value)
    return (3, value.timestamp()) if isinstance(value, datetime) else (4, str(value))


def _copied(value: Any) -> Any:
    """Return a copy whose maps and lists are its own; all other values are immutable."""
    if isinstance(value, dict | Mapping):  # a dict is recognised at once
        return {name: _copied(item) for name, item in value.items()}
    return [_copied(item) for item in value] if isinstance(value, list) else value


def _check(path: str, fields: Mapping[str, Any]) -> None:
    if (size := _size(fields) + len(path) + 33) > LIMIT:
        raise exceptions.InvalidArgument(f"document {path} has {size} bytes, more than {LIMIT}")
    if (entries := 2 * _leaves(fields)) > INDEX_ENTRIES:
        raise exceptions.InvalidArgument(f"document {path} has {entries} index entries, more than {INDEX_ENTRIES}")
    for value in fields.values():
        _check_value(value, within_list=False, depth=1)


def _check_value(value: Any, *, within_list: bool, depth: int) -> None:
    if depth > 20:
        raise exceptions.InvalidArgument("more than 20 levels")
    if isinstance(value, dict | Mapping):
        if any(not name or (name.startswith("__") and name.endswith("__")) for name in value):
            raise exceptions.InvalidArgument("reserved name")
        for item in value.values():
            _check_value(item, within_list=False, depth=depth + 1)
    elif isinstance(value, list):
        if within_list:
            raise exceptions.InvalidArgument("list in a list")
        for item in value:
            _check_value(item, within_list=True, depth=depth + 1)
    elif isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise exceptions.InvalidArgument("integer beyond 64 bits")
    elif not isinstance(value, str | float | int | bytes | datetime | None):
        raise exceptions.InvalidArgument(f"{type(value).__name__} cannot be stored")


def _size(value: Any) -> int:
    if isinstance(value, str):
        return len(value.encode()) + 1
    if isinstance(value, dict | Mapping):
        return sum(len(name.encode()) + 1 + _size(item) for name, item in value.items())
    if isinstance(value, list):
        return sum(map(_size, value))
    return len(value) if isinstance(value, bytes) else 8


def _leaves(value: Any) -> int:
    if isinstance(value, dict | Mapping):
        return sum(map(_leaves, value.values()))
    return 1 + (len(value) if isinstance(value, list) else 0)


@pytest.fixture
def firestore(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return the server that every FirestoreStore of this test connects to."""
    import time

    from google.cloud import firestore as client

    from tpukit.kernel.store import firestore_calls

    server = Server(time.time)
    monkeypatch.setattr(client, "Client", lambda project, database: Client(server, project))
    monkeypatch.setattr(firestore_calls, "_connect", lambda made: None)
    return server
