"""Rounds over keys: list, hold, observe a group at once, then decide, write and act for each key by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tpukit.clock import Clock
from tpukit.control.troubles import Troubles
from tpukit.errors import Conflict, NotFound, TpukitError
from tpukit.store import Entry, Event, Kind, Lease, Page

T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S")

RACES = 5
"""How often a decision is made anew because somebody else wrote to the record meanwhile."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """The record first, then the act."""

    value: T
    act: Any = None  # for Use.act; None: nothing
    note: str = ""  # what is told of it


class Records(Protocol):
    """Where the records are: a store, or whatever else can list, read and write them."""

    def get(self, kind: Kind[T], key: str) -> Entry[T]:
        """NotFound if there is none."""

    def put(
        self, kind: Kind[T], entry: Entry[T], value: T, *, lease: Lease | None = None, events: Sequence[Event] = ()
    ) -> Entry[T]:
        """Conflict if the record is not what `entry` says any more, or the lease is not held any more."""

    def list(
        self, kind: Kind[T], *, states: Sequence[str] = (), newest: bool = False, after: str = "", limit: int = 0
    ) -> Page[T]: ...

    def lease(self, name: str) -> Lease | None:
        """Who holds it now; None: nobody."""


class Holding(Protocol):
    """The right to drive keys: a lease for each, or one for all."""

    def hold(self, name: str) -> Lease | None:
        """None while somebody else has it."""

    def lost(self, name: str) -> None: ...

    def release(self, *names: str) -> None: ...

    def close(self) -> None: ...


class Use(Protocol[T, S]):
    """One use of the kernel. Each of its methods may be called from several threads, never twice at once for a key."""

    kind: Kind[T]
    states: Sequence[str]  # of records that are driven

    def select(self, entries: Sequence[Entry[T]]) -> Sequence[Entry[T]]:
        """Those to drive now; the others wait for their turn."""

    def group(self, value: T) -> str | None:
        """Keys of one group are observed with one call, apart from all others. None: it cannot be driven from here."""

    def observe(self, group: str, entries: Sequence[Entry[T]]) -> Mapping[str, S | TpukitError]:
        """What is there of each, by key. An error of one is its own affair; one that is raised concerns all."""

    def decide(self, value: T, seen: S | None, now: float) -> Decision[T]:
        """Pure."""

    def act(self, value: T, act: Any) -> None:
        """Do it. Doing it twice does it once."""

    def failed(self, value: T, act: Any, error: TpukitError, now: float) -> Decision[T] | None:
        """What the record says of an act that cannot be done; None: nothing, it is tried again."""

    def troubled(self, value: T, text: str) -> T:
        """The record of a key that cannot be driven on just now, and says why."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """For those who count. Called from the threads that drive; what they raise is a bug of theirs."""

    timed: Callable[[str, float], None] = lambda group, seconds: None  # after each round of a group
    failed: Callable[[str, Exception], None] = lambda name, error: None  # of a key or a group, each time
    ended: Callable[[Any], None] = lambda value: None  # the record of a key that is driven no more


class Kernel(Generic[T, S]):
    def __init__(
        self,
        store: Records,
        use: Use[T, S],
        leases: Holding,
        clock: Clock,
        *,
        workers: int = 0,
        report: Callable[[str, str], None] = lambda key, text: None,
        complain: Callable[[str, str], None] = lambda key, text: None,
        hooks: Hooks | None = None,
        seed: int | None = None,
    ) -> None:
        self._store, self._use, self._leases, self._clock = store, use, leases, clock
        self._workers = workers  # of each group; 0: everything happens in the calling thread
        self._report = report  # told of each step taken
        self._keys = Troubles(clock, complain, seed)  # `complain` is told once of what did not work and is tried again
        self._groups = Troubles(clock, complain, seed)
        self._hooks = hooks or Hooks()
        self._busy: set[str] = set()  # groups whose round is under way
        self._pools: dict[str, ThreadPoolExecutor] = {}
        self._lock = threading.Lock()
        self.rounds = 0
        self.drivable = 0  # keys of the last round that can be driven from here, now or when it is their turn

    def round(self, only: Sequence[str] = ()) -> int:
        """One step for each active key (or those named); how many are still active."""
        with self._lock:  # before the entries are read: what a round under way has ended since would be driven again
            busy = frozenset(self._busy)
        entries = self._entries(only)
        group_of = {entry.key: self._group(entry) for entry in entries}
        groups: dict[str, list[Entry[T]]] = {}
        for entry in self._use.select(entries) if not only else entries:
            group = group_of[entry.key]
            if group is not None:
                groups.setdefault(group, []).append(entry)
        for group, members in groups.items():
            if group not in busy:  # its last round is not over: others do not wait for it
                self._start(group, members)
        self.rounds += 1
        self.drivable = sum(1 for group in group_of.values() if group is not None)
        return len(entries)

    def settle(self, seconds: float) -> bool:
        """Wait, at most so long, for rounds that are under way; whether all are over."""
        due = time.monotonic() + seconds
        while self._busy:
            if time.monotonic() >= due:
                return False
            time.sleep(0.01)
        return True

    def close(self) -> None:
        """Wait for nothing that hangs; give back what is held."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._leases.close()

    def trouble(self) -> Mapping[str, str]:
        """What cannot be driven just now, and why: keys and groups."""
        return {**self._groups.texts(), **self._keys.texts()}

    def _entries(self, only: Sequence[str]) -> Sequence[Entry[T]]:
        if not only:
            return self._active()
        named = [self._store.get(self._use.kind, key) for key in only]
        return [entry for entry in named if self._driven(entry)]

    def _active(self) -> Sequence[Entry[T]]:
        page = self._store.list(self._use.kind, states=self._use.states)
        entries = list(page.entries)
        while page.next:
            page = self._store.list(self._use.kind, states=self._use.states, after=page.next)
            entries += page.entries
        return entries

    def _driven(self, entry: Entry[T]) -> bool:
        return getattr(entry.value, self._use.kind.state) in self._use.states

    def _group(self, entry: Entry[T]) -> str | None:
        try:
            return self._use.group(entry.value)
        except Exception as error:
            if self._keys.due(entry.key):
                self._fail(self._keys, entry.key, error)
            return None

    def _start(self, group: str, entries: Sequence[Entry[T]]) -> None:
        if not self._workers:
            self._drive(group, entries)
            return
        with self._lock:
            if group in self._busy:  # somebody else's round was quicker
                return
            self._busy.add(group)
            if group not in self._pools:
                self._pools[group] = ThreadPoolExecutor(self._workers + 1, thread_name_prefix=f"drive {group}")
            pool = self._pools[group]
        pool.submit(self._in_background, group, entries)

    def _in_background(self, group: str, entries: Sequence[Entry[T]]) -> None:
        try:
            self._drive(group, entries)
        except Exception as error:
            self._fail(self._groups, group, error)
        finally:
            with self._lock:
                self._busy.discard(group)

    def _drive(self, group: str, entries: Sequence[Entry[T]]) -> None:
        """One round of a group."""
        due = [entry for entry in entries if self._keys.due(entry.key)]
        if not due or not self._groups.due(group):
            return
        held = [(entry, lease) for entry in due if (lease := self._hold(entry.key))]
        if not held:
            return
        began = self._clock.monotonic()
        try:
            seen = self._use.observe(group, [entry for entry, _ in held])
        except Exception as error:
            self._fail(self._groups, group, error)
            for entry, lease in held:
                self._record(entry, lease, self._groups.for_record(group))
            return
        self._groups.clear(group)
        self._each(group, [(entry, lease, seen.get(entry.key)) for entry, lease in held])
        self._hooks.timed(group, self._clock.monotonic() - began)

    def _each(self, group: str, steps: Sequence[tuple[Entry[T], Lease, S | TpukitError | None]]) -> None:
        pool = self._pools.get(group)
        if pool is None:
            for step in steps:
                self._step(*step)
            return
        for future in [pool.submit(self._step, *step) for step in steps]:
            future.result()

    def _hold(self, key: str) -> Lease | None:
        try:
            return self._leases.hold(f"{self._use.kind.name}/{key}")
        except TpukitError as error:
            self._fail(self._keys, key, error)
            return None

    def _step(self, entry: Entry[T], lease: Lease, seen: S | TpukitError | None) -> None:
        """Isolated: whatever happens to one key, the others go on."""
        try:
            if isinstance(seen, TpukitError):
                raise seen
            entry, decision = self._decide(entry, lease, seen)
            if decision.act is not None:
                entry = self._act(entry, lease, decision)
        except Exception as error:
            if isinstance(error, NotFound) and self._gone(entry.key):
                return
            self._fail(self._keys, entry.key, error)
            self._record(entry, lease, self._keys.for_record(entry.key))
        else:
            self._keys.clear(entry.key)
            if not self._driven(entry):
                self._leases.release(lease.name)
                self._hooks.ended(entry.value)

    def _decide(self, entry: Entry[T], lease: Lease, seen: S | None) -> tuple[Entry[T], Decision[T]]:
        """The decision, and the record as it was written with it."""
        for last in (False,) * (RACES - 1) + (True,):
            if not self._driven(entry):  # somebody else has ended it
                break
            now = self._clock.now()
            decision = self._use.decide(entry.value, seen, now)
            if decision.value == entry.value and not decision.note:
                return entry, decision
            try:
                return self._write(entry, lease, decision, now), decision
            except Conflict:
                if last or not self._still_held(lease):
                    raise
                entry = self._store.get(self._use.kind, entry.key)  # a person asked for something: decide again
        return entry, Decision(entry.value)

    def _write(self, entry: Entry[T], lease: Lease, decision: Decision[T], now: float) -> Entry[T]:
        events = [Event(now, decision.note)] if decision.note else ()
        entry = self._store.put(self._use.kind, entry, decision.value, lease=lease, events=events)
        if decision.note:
            self._report(entry.key, decision.note)
        return entry

    def _still_held(self, lease: Lease) -> bool:
        current = self._store.lease(lease.name)
        if current is not None and (current.holder.name, current.token) == (lease.holder.name, lease.token):
            return True
        self._leases.lost(lease.name)
        return False

    def _act(self, entry: Entry[T], lease: Lease, decision: Decision[T]) -> Entry[T]:
        try:
            self._use.act(entry.value, decision.act)
        except TpukitError as error:
            now = self._clock.now()
            following = self._use.failed(entry.value, decision.act, error, now)
            if following is None:
                raise
            return self._write(entry, lease, following, now)
        return entry

    def _gone(self, key: str) -> bool:
        """Somebody removed the record."""
        try:
            self._store.get(self._use.kind, key)
        except NotFound:
            return True
        except TpukitError:
            return False
        return False

    def _fail(self, troubles: Troubles, name: str, error: Exception) -> None:
        troubles.add(name, error)
        self._hooks.failed(name, error)

    def _record(self, entry: Entry[T], lease: Lease, text: str) -> None:
        """So that whoever looks at the record knows why it does not move."""
        if not text:
            return
        try:
            fresh = self._store.get(self._use.kind, entry.key)
            value = self._use.troubled(fresh.value, text)
            if value != fresh.value:
                self._store.put(self._use.kind, fresh, value, lease=lease)
        except TpukitError:
            return  # the store itself is away, or somebody else drives it by now
