"""Typed collections of documents, behind one interface with two homes: SQLite for one machine, Firestore for a team.

What is written is compared first: a put names the revision that it was decided on, and where a lease decides who may
write, its token too. Documents carry the version of their format, are brought up when they are read, and keep fields
that this version does not know. A watch is a hint and may miss things; reading is the truth. Safe from any thread.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tpukit.core.errors import Conflict

LAPSED_SECONDS = 86_400.0
"""So long after its end a lease is remembered."""
PRUNED = 400
"""Leases that one call removes at most."""

T = TypeVar("T", bound=msgspec.Struct)
Upgrade = Callable[[dict[str, Any]], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Plain:
    """Of a collection that programs without tpukit write to as well, where the home is one that they can reach.

    A document of theirs has no place in lists yet. A list without a limit has it nevertheless, and whoever writes it
    with this store gives it one.
    """

    times: tuple[str, ...]  # fields that are timestamps there: seconds in records, 0 for those that are not there
    placed: str  # name of the true-or-false field that says whether it has its place; read, never stored
    heard: str  # which of the times a new document has: what watches hear it by
    tidy: Upgrade = dict  # brings fields that only tpukit writes into the shape that it reads, whatever a program wrote


@dataclass(frozen=True, slots=True)
class Kind(Generic[T]):
    """What a collection holds."""

    name: str
    type: type[T]
    state: str  # name of the text field that lists are filtered by
    order: str  # name of the number field that lists are ordered by
    upgrades: tuple[Upgrade, ...] = ()  # the nth brings a document from version n + 1 to n + 2
    plain: Plain | None = None
    opaque: tuple[str, ...] = ()  # fields with the user's own content: JSON text where the home limits what it takes
    limit: int = 0  # bytes of a document, as JSON; 0: what the home takes
    known: tuple[str, ...] = ()  # every state that this version knows; empty: any text is one

    @property
    def version(self) -> int:
        return len(self.upgrades) + 1


@dataclass(frozen=True, slots=True)
class Entry(Generic[T]):
    """A document as it was read."""

    key: str
    value: T
    revision: int  # grows by one with every write
    raw: Mapping[str, Any] = field(default_factory=dict, repr=False)  # as it is stored, with unknown fields
    proof: Any = field(default=None, repr=False, compare=False)  # by which the home recognises this very revision


@dataclass(frozen=True, slots=True)
class Broken:
    """A document that this version cannot read. It is listed, and touched by nobody."""

    key: str
    why: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    entries: Sequence[Entry[T]]
    broken: Sequence[Broken] = ()
    next: str = ""  # cursor of the next page; empty: this was the last


class Event(msgspec.Struct, frozen=True):
    """Something that happened to what a document describes, in a sentence."""

    at: float
    text: str


class Holder(msgspec.Struct, frozen=True):
    """Who holds a lease: a process, so that one on the same machine can tell that it died."""

    name: str  # unique for every start of every process
    machine: str = ""
    pid: int = 0
    started: str = ""  # when the process began, as the machine writes it: ids of processes are used again
    user: str = ""


class Lease(msgspec.Struct, frozen=True):
    """The right to write what `name` stands for, until `ends`."""

    name: str
    holder: Holder
    ends: float
    token: int  # grows whenever the lease changes hands, or is taken again after it had lapsed


# msgspec finds out what a type is made of when it first reads one, and crashes if another thread does so meanwhile.
for _read_by_threads in (Event, Holder, Lease):
    msgspec.json.Decoder(_read_by_threads)


class Store(Protocol):
    """Every call is one transaction. Errors are those of tpukit.core.errors; Transient where the home is away."""

    address: str  # as the setting `store` names it

    def get(self, kind: Kind[T], key: str) -> Entry[T]:
        """NotFound if there is none; Conflict if this version cannot read it."""

    def create(self, kind: Kind[T], key: str, value: T, *, events: Sequence[Event] = ()) -> Entry[T]:
        """Conflict if the key is taken, or this home was left for another (tpukit.kernel.store.mark)."""

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
        """Conflict if the document is not what `entry` says any more, or the lease is not held any more. `release`:
        the lease is free when it is written."""

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
        """Acquire and put in one. None, and nothing is done, where somebody else holds the lease or wrote before."""

    def delete(self, kind: Kind[T], entry: Entry[T]) -> None:
        """With its events. Conflict as for put."""

    def list(
        self, kind: Kind[T], *, states: Sequence[str] = (), newest: bool = False, after: str = "", limit: int = 0
    ) -> Page[T]:
        """By the kind's order, oldest first unless `newest`; at most `limit`, from behind the cursor `after`.

        The first page names every unreadable document of these states and of states that this version does not know.
        """

    def strangers(self, kind: Kind[T]) -> Page[T]:
        """Documents whose state is none of `kind.known`: a newer version, or a program without tpukit, wrote them."""

    def keys(self, kind: Kind[T], prefix: str = "") -> frozenset[str]:
        """Of all documents, those that cannot be read included."""

    def events(self, kind: Kind[T], key: str, *, after: int = 0) -> Sequence[Event]:
        """In the order in which they were written, without the first `after`."""

    def acquire(self, name: str, holder: Holder, seconds: float) -> Lease | None:
        """None while another holder has it; Conflict if this home was left for another. A lease of a dead process of
        this machine is free at once; one that its own holder asks for again is prolonged."""

    def renew(self, lease: Lease, seconds: float) -> Lease:
        """Conflict if it went to somebody else."""

    def release(self, lease: Lease) -> None:
        """Free at once. Nothing happens where it was lost before."""

    def lease(self, name: str) -> Lease | None:
        """Who holds it now; None: nobody."""

    def leases(self) -> Sequence[Lease]:
        """All that are held now."""

    def revoke(self) -> None:
        """End every lease: no holder writes under one any more."""

    def prune(self) -> int:
        """Remove leases that lapsed long ago, some hundred at a time; how many. A token is never given twice."""

    def watch(self, kind: Kind[T], wake: Callable[[], None]) -> Callable[[], None]:
        """Call `wake`, from another thread, when something may have changed. The answer ends it."""

    def now(self) -> float:
        """Seconds since the epoch on the clock that leases go by."""

    def close(self) -> None: ...


def change(
    store: Store, kind: Kind[T], key: str, change: Callable[[T], T], *, note: str = "", at: float = 0.0
) -> Entry[T]:
    """Read, change and write one document, again where somebody else was faster."""
    for _ in range(100):
        entry = store.get(kind, key)
        value = change(entry.value)  # what it raises is the caller's own affair
        try:
            return store.put(kind, entry, value, events=[Event(at, note)] if note else ())
        except Conflict as error:
            raced = error
    raise raced


def unreadable(store: Store, kind: Kind[T], **query: Any) -> Sequence[Broken]:
    """Documents of a list that this version cannot read, page after page."""
    page = store.list(kind, **query)
    broken = list(page.broken)
    while page.next:
        page = store.list(kind, after=page.next, **query)
        broken += page.broken
    return broken


def everything(store: Store, kind: Kind[T], **query: Any) -> Sequence[Entry[T]]:
    """All entries of a list, page after page."""
    page = store.list(kind, **query)
    entries = list(page.entries)
    while page.next:
        page = store.list(kind, after=page.next, **query)
        entries += page.entries
    return entries
