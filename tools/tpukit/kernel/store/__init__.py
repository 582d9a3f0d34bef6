"""Typed collections of documents, behind one interface with two homes: SQLite for one machine, Firestore for a team.

Writes use compare-and-set: a put names the revision that it was decided on and, under a lease, the
lease's token. Documents carry the version of their format, are upgraded when read, and keep fields that this version
does not know. A watch is a hint and may miss changes; only reads are authoritative. Thread-safe.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tpukit.core.errors import Conflict

LAPSED_SECONDS = 86_400.0
"""Seconds for which a lease is remembered after its end."""
PRUNED = 400
"""Most leases that one call removes."""

T = TypeVar("T", bound=msgspec.Struct)
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Plain:
    """Options of a collection that programs without tpukit also write to, where they can reach the home.

    A new document of theirs has no position in lists yet. Lists without a limit include it nevertheless, and the next
    write through this store gives it one.
    """

    times: tuple[str, ...]  # fields that are timestamps there: seconds in records, 0 for absent ones
    placed: str  # name of the boolean field that says whether it has its position; read, never stored
    heard: str  # the time field that every new document has, for watches
    tidy: Upgrade = dict  # repairs fields that only tpukit should write, whatever a program wrote


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """Description of a collection."""

    name: str
    type: type[T]
    state: str  # name of the text field by which lists are filtered
    order: str  # name of the number field by which lists are ordered
    upgrades: tuple[Upgrade, ...] = ()  # the nth upgrades a document from version n + 1 to n + 2
    plain: Plain | None = None
    opaque: tuple[str, ...] = ()  # fields with user content: JSON text where the home limits fields
    limit: int = 0  # bytes of a document, as JSON; 0: the limit of the home
    known: tuple[str, ...] = ()  # every state that this version knows; empty: any text is one

    @property
    def version(self) -> int:
        return len(self.upgrades) + 1


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A document as it was read."""

    key: str
    value: T
    revision: int  # increases by one with every write
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as stored, with unknown fields
    proof: Any = field(default=None, repr=False, compare=False)  # by which the home recognises exactly this revision


@dataclass(frozen=True, slots=True)
class Broken:
    """A document that this version cannot read. It is listed and never changed."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    entries: Sequence[Entry[T]]
    broken: Sequence[Broken] = ()
    next: str = ""  # cursor of the next page; empty: this was the last


class Event(msgspec.Struct, frozen=True):
    """A sentence about something that happened to a document."""

    at: float
    text: str


class Holder(msgspec.Struct, frozen=True):
    """The process that holds a lease, so that others on its machine can tell whether it is dead."""

    name: str  # unique for every start of every process
    machine: str = ""
    pid: int = 0
    started: str = ""  # start time of the process as the machine writes it, because process ids are reused
    user: str = ""


class Lease(msgspec.Struct, frozen=True):
    """The right to write what `name` stands for, until `ends`."""

    name: str
    holder: Holder
    ends: float
    token: int  # increases when the lease changes hands, or is acquired again after it lapsed


# msgspec inspects a type when it first reads one, and crashes if another thread does so meanwhile.
for _read_by_threads in (Event, Holder, Lease):
    msgspec.json.Decoder(_read_by_threads)


class Store(Protocol):
    """A store. Every call is one transaction.

    Errors are those of tpukit.core.errors; Transient if the home is unreachable.
    """

    address: str  # as in the setting `store`

    def get(self, kind: Kind[T], key: str) -> Entry[T]:
        """Return the document. Raise NotFound if it is missing, Conflict if it is unreadable."""

    def create(self, kind: Kind[T], key: str, value: T, *, events: Sequence[Event] = ()) -> Entry[T]:
        """Create a document.

        Raises:
            Conflict: The key is taken, or this home was moved away from (tpukit.kernel.store.mark).
        """

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
        """Write a document. `release`: also release the lease.

        Raises:
            Conflict: The document differs from `entry` by now, or the lease is lost.
        """

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
        """Acquire and put in one step. Return None, and do nothing, if the lease is held or the document changed."""

    def delete(self, kind: Kind[T], entry: Entry[T]) -> None:
        """Delete the document with its events. Conflict as for `put`."""

    def list(
        self, kind: Kind[T], *, states: Sequence[str] = (), newest: bool = False, after: str = "", limit: int = 0
    ) -> Page[T]:
        """Return at most `limit` documents after the cursor `after`, by the kind's order, oldest first unless `newest`.

        The first page names every unreadable document of these states and of states that this version does not know.
        """

    def strangers(self, kind: Kind[T]) -> Page[T]:
        """Return documents in unknown states, written by a newer version or by programs without tpukit."""

    def keys(self, kind: Kind[T], prefix: str = "") -> frozenset[str]:
        """Return the keys of all documents, including unreadable ones."""

    def events(self, kind: Kind[T], key: str, *, after: int = 0) -> Sequence[Event]:
        """Return events in the order written, without the first `after`."""

    def acquire(self, name: str, holder: Holder, seconds: float) -> Lease | None:
        """Acquire a lease; return None while another process holds it.

        A lease of a dead process of this machine is free at once, and a lease of the same holder is prolonged.

        Raises:
            Conflict: This home was moved away from.
        """

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Renew a lease, or raise Conflict if another holder has it."""

    def release(self, lease: Lease) -> None:
        """Release a lease at once. Do nothing if it was lost before."""

    def lease(self, name: str) -> Lease | None:
        """Return the current lease; None if it is free."""

    def leases(self) -> Sequence[Lease]:
        """Return all leases held now."""

    def revoke(self) -> None:
        """End every lease, so that no holder can write under one."""

    def prune(self) -> int:
        """Remove leases that lapsed long ago, some hundred at a time, and return how many. Tokens are never reused."""

    def watch(self, kind: Kind[T], wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake` from another thread when something may have changed. Return a function that stops it."""

    def now(self) -> float:
        """Return seconds since the epoch, on the clock of the leases."""

    def close(self) -> None: ...


def change(
    store: Store, kind: Kind[T], key: str, change: Callable[[T], T], *, note: str = "", at: float = 0.0
) -> Entry[T]:
    """Read, change and write one document, and retry if another process changed it meanwhile."""
    for _ in range(100):
        entry = store.get(kind, key)
        value = change(entry.value)  # its errors are the caller's
        try:
            return store.put(kind, entry, value, events=[Event(at, note)] if note else ())
        except Conflict as error:
            raced = error
    raise raced


def unreadable(store: Store, kind: Kind[T], **query: Any) -> Sequence[Broken]:
    """Return the documents of a list that this version cannot read, from all pages."""
    page = store.list(kind, **query)
    broken = list(page.broken)
    while page.next:
        page = store.list(kind, after=page.next, **query)
        broken += page.broken
    return broken


def everything(store: Store, kind: Kind[T], **query: Any) -> Sequence[Entry[T]]:
    """Return the entries of a list, from all pages."""
    page = store.list(kind, **query)
    entries = list(page.entries)
    while page.next:
        page = store.list(kind, after=page.next, **query)
        entries += page.entries
    return entries
