"""Rounds over keys: list, hold, observe a group at once, then decide, write and act for each key by itself."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tpukit.clock import Clock
from tpukit.control import backoff
from tpukit.control.leases import Leases
from tpukit.errors import Conflict, NotFound, NotYet, TpukitError
from tpukit.store import Entry, Event, Kind, Lease, Store, everything

T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S")

RACES = 5
"""How often a decision is made anew because somebody else wrote to the record meanwhile."""
log = logging.getLogger("tpukit.control")


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """The record first, then the act."""

    value: T
    act: Any = None  # for Use.act; None: nothing
    note: str = ""  # what is told of it


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


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    until: float = 0.0  # awake seconds
    text: str = ""
    complained: str = ""


@dataclass(slots=True)
class _State:
    """Of one kernel. Nothing of it is needed to go on elsewhere."""

    keys: dict[str, _Trouble] = field(default_factory=dict)
    groups: dict[str, _Trouble] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)  # groups whose round is under way
    pools: dict[str, ThreadPoolExecutor] = field(default_factory=dict)


class Kernel(Generic[T, S]):
    def __init__(
        self,
        store: Store,
        use: Use[T, S],
        leases: Leases,
        clock: Clock,
        *,
        workers: int = 0,
        report: Callable[[str, str], None] = lambda key, text: None,
        complain: Callable[[str, str], None] = lambda key, text: None,
        seed: int | None = None,
    ) -> None:
        self._store, self._use, self._leases, self._clock = store, use, leases, clock
        self._workers = workers  # of each group; 0: everything happens in the calling thread
        self._report = report  # told of each step taken
        self._complain = complain  # told once of what did not work and is tried again
        self._random = random.Random(seed)  # noqa: S311  # spreads retries, guards nothing
        self._state = _State()
        self._lock = threading.Lock()
        self.rounds = 0

    def round(self, only: Sequence[str] = ()) -> int:
        """One step for each active key (or those named); how many are still active."""
        entries = self._entries(only)
        groups: dict[str, list[Entry[T]]] = {}
        for entry in self._use.select(entries) if not only else entries:
            group = self._group(entry)
            if group is not None:
                groups.setdefault(group, []).append(entry)
        for group, members in groups.items():
            self._start(group, members)
        self.rounds += 1
        return len(entries)

    def close(self) -> None:
        """Wait for nothing that hangs; give back what is held."""
        for pool in self._state.pools.values():
            pool.shutdown(wait=False, cancel_futures=True)
        self._leases.close()

    def trouble(self) -> Mapping[str, str]:
        """What cannot be driven just now, and why: keys and groups."""
        with self._lock:
            both = {**self._state.groups, **self._state.keys}
            return {name: it.text for name, it in both.items() if it.failures}

    def _entries(self, only: Sequence[str]) -> Sequence[Entry[T]]:
        if not only:
            return everything(self._store, self._use.kind, states=self._use.states)
        named = [self._store.get(self._use.kind, key) for key in only]
        return [entry for entry in named if self._driven(entry)]

    def _driven(self, entry: Entry[T]) -> bool:
        return getattr(entry.value, self._use.kind.state) in self._use.states

    def _group(self, entry: Entry[T]) -> str | None:
        try:
            return self._use.group(entry.value)
        except Exception as error:
            if self._due(self._state.keys, entry.key):
                self._note_trouble(self._state.keys, entry.key, error)
            return None

    def _start(self, group: str, entries: Sequence[Entry[T]]) -> None:
        if not self._workers:
            self._drive(group, entries)
            return
        with self._lock:
            if group in self._state.busy:  # its last round is not over: others do not wait for it
                return
            self._state.busy.add(group)
            pool = self._state.pools.setdefault(
                group, ThreadPoolExecutor(self._workers + 1, thread_name_prefix=f"drive {group}")
            )
        pool.submit(self._in_background, group, entries)

    def _in_background(self, group: str, entries: Sequence[Entry[T]]) -> None:
        try:
            self._drive(group, entries)
        except Exception:
            log.exception("the round of %s failed", group)
        finally:
            with self._lock:
                self._state.busy.discard(group)

    def _drive(self, group: str, entries: Sequence[Entry[T]]) -> None:
        """One round of a group."""
        due = [entry for entry in entries if self._due(self._state.keys, entry.key)]
        if not due or not self._due(self._state.groups, group):
            return
        held = [(entry, lease) for entry in due if (lease := self._hold(entry.key))]
        if not held:
            return
        try:
            seen = self._use.observe(group, [entry for entry, _ in held])
        except Exception as error:
            self._note_trouble(self._state.groups, group, error)
            for entry, lease in held:
                self._record_trouble(entry, lease, self._state.groups[group], error)
            return
        self._state.groups.pop(group, None)
        steps = ((entry, lease, seen.get(entry.key)) for entry, lease in held)
        self._each(group, steps)

    def _each(self, group: str, steps: Iterable[tuple[Entry[T], Lease, S | TpukitError | None]]) -> None:
        pool = self._state.pools.get(group)
        if pool is None or not self._workers:
            for step in steps:
                self._step(*step)
            return
        for future in [pool.submit(self._step, *step) for step in steps]:
            future.result()

    def _hold(self, key: str) -> Lease | None:
        try:
            return self._leases.hold(f"{self._use.kind.name}/{key}")
        except TpukitError as error:
            self._note_trouble(self._state.keys, key, error)
            return None

    def _step(self, entry: Entry[T], lease: Lease, seen: S | TpukitError | None) -> None:
        """Isolated: whatever happens to one key, the others go on."""
        try:
            if isinstance(seen, TpukitError):
                raise seen
            entry, decision = self._decide(entry, lease, seen)
            if decision.act is not None:
                self._act(entry, lease, decision)
        except NotFound as error:
            if not self._gone(entry.key):
                self._troubled(entry, lease, error)
        except Exception as error:
            self._troubled(entry, lease, error)
        else:
            self._state.keys.pop(entry.key, None)
            if not self._driven(entry):
                self._leases.release(lease.name)

    def _decide(self, entry: Entry[T], lease: Lease, seen: S | None) -> tuple[Entry[T], Decision[T]]:
        """The decision, and the record as it was written with it."""
        for last in (False,) * (RACES - 1) + (True,):
            if not self._driven(entry):  # somebody else has ended it
                return entry, Decision(entry.value)
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
        raise AssertionError("unreachable")

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

    def _act(self, entry: Entry[T], lease: Lease, decision: Decision[T]) -> None:
        try:
            self._use.act(entry.value, decision.act)
        except TpukitError as error:
            now = self._clock.now()
            following = self._use.failed(entry.value, decision.act, error, now)
            if following is None:
                raise
            self._write(entry, lease, following, now)

    def _gone(self, key: str) -> bool:
        """Somebody removed the record."""
        try:
            self._store.get(self._use.kind, key)
        except NotFound:
            return True
        return False

    def _due(self, troubles: Mapping[str, _Trouble], name: str) -> bool:
        trouble = troubles.get(name)
        return trouble is None or self._clock.monotonic() >= trouble.until

    def _troubled(self, entry: Entry[T], lease: Lease, error: Exception) -> None:
        self._note_trouble(self._state.keys, entry.key, error)
        self._record_trouble(entry, lease, self._state.keys[entry.key], error)

    def _note_trouble(self, troubles: dict[str, _Trouble], name: str, error: Exception) -> None:
        with self._lock:
            trouble = troubles.setdefault(name, _Trouble())
            trouble.failures += 1
            wait = backoff.after(error, trouble.failures, self._random.random)
            trouble.until = self._clock.monotonic() + wait.seconds
            trouble.text = _said(error)
            new = bool(wait.seconds) and trouble.complained != trouble.text and not isinstance(error, NotYet)
            if new:
                trouble.complained = trouble.text
        if new:
            self._complain(name, trouble.text)
        if not isinstance(error, TpukitError):
            log.error("%s: %s", name, error, exc_info=error)

    def _record_trouble(self, entry: Entry[T], lease: Lease, trouble: _Trouble, error: Exception) -> None:
        """So that whoever looks at the record knows why it does not move."""
        if not backoff.after(error, trouble.failures, lambda: 0.0).recorded:
            return
        try:
            fresh = self._store.get(self._use.kind, entry.key)
            value = self._use.troubled(fresh.value, trouble.text)
            if value != fresh.value:
                self._store.put(self._use.kind, fresh, value, lease=lease)
        except TpukitError:
            return  # the store itself is away, or somebody else drives it by now


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, TpukitError) else f"{type(error).__name__}: {error}"
