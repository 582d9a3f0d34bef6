"""Run rounds over keys: list, hold, observe a group at once, then decide, write and act for each key separately.

Everything done for a key happens under a fence: adapters check its lease immediately before each call that changes
something. A driver that cannot observe or act on a key for long releases its lease, so that another driver can try.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, Protocol, TypeVar

import msgspec

from tpukit.core import fence
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, LeaseLost, NotFound, NotYet, TpukitError, Transient
from tpukit.kernel.retry_state import RetryState
from tpukit.kernel.store import Entry, Event, Kind, Lease, Page
from tpukit.kernel.under_way import Name, UnderWay

T = TypeVar("T", bound=msgspec.Struct)
S = TypeVar("S")

RACES = 5
"""Number of attempts at a decision when the record keeps changing."""
BLIND_SECONDS = 60.0
"""Seconds without observing or acting on a key after which a driver releases its lease."""
OBSERVE_SECONDS, STEP_SECONDS = 300.0, 3600.0
"""Longest observation, and longest step of one key, before it counts as hung and is abandoned.

Every call has a shorter timeout of its own; the longest legitimate step runs a host's setup command.
"""
MOST_ABANDONED = 5
"""Number of hung threads at which the process should be restarted."""


@dataclass(frozen=True, slots=True)
class Decision(Generic[T]):
    """The next record, written first, and the act that follows."""

    value: T
    act: Any = None  # passed to Use.act; None: nothing to do
    note: str = ""  # text of the event


class Records(Protocol):
    """A collection of records: a store, or anything else that can list, read and write them."""

    def get(self, kind: Kind[T], key: str) -> Entry[T]:
        """Return the record, or raise NotFound."""

    def put(
        self, kind: Kind[T], entry: Entry[T], value: T, *, lease: Lease | None = None, events: Sequence[Event] = ()
    ) -> Entry[T]:
        """Write the record. Raise Conflict if it differs from `entry` by now, or the lease is lost."""

    def list(
        self, kind: Kind[T], *, states: Sequence[str] = (), newest: bool = False, after: str = "", limit: int = 0
    ) -> Page[T]: ...

    def lease(self, name: str) -> Lease | None:
        """Return the current lease; None if it is free."""


class Holding(Protocol):
    """The right to drive keys: a lease for each, or one for all."""

    def hold(self, name: str) -> Lease | None:
        """Return the lease, renewed if it is due; None while another driver holds it."""

    def check(self, lease: Lease) -> float:
        """Return for how many seconds the lease is certainly held, renewing it if that is short.

        Raises:
            LeaseLost: The lease is no longer held.
        """

    def lost(self, name: str) -> None: ...

    def release(self, *names: str) -> None: ...

    def resign(self, *names: str) -> None:
        """Release keys that this driver cannot drive: with one lease for all keys, that lease."""

    def close(self) -> None: ...


class Use(Protocol[T, S]):
    """One use of the kernel. Its methods are called from several threads, but never concurrently for one key."""

    kind: Kind[T]
    states: Sequence[str]  # states of records that are driven

    def select(self, entries: Sequence[Entry[T]]) -> Sequence[Entry[T]]:
        """Return the entries to drive now; the others wait for their turn."""

    def group(self, value: T) -> str | None:
        """Return the group of a key, or None if it cannot be driven from here.

        Keys of one group are observed with one call.
        """

    def observe(self, group: str, entries: Sequence[Entry[T]]) -> Mapping[str, S | TpukitError]:
        """Return the observation of each key. A returned error concerns one key, a raised one the whole group."""

    def decide(self, value: T, seen: S | None, now: float) -> Decision[T]:
        """Return the next step. Pure."""

    def act(self, value: T, act: Any) -> Callable[[T], T] | None:
        """Carry out an act, and return the change that it makes to the record, if any. Idempotent."""

    def failed(self, value: T, act: Any, error: TpukitError, now: float) -> Decision[T] | None:
        """Return the decision after an act that cannot be done, or None to retry it."""

    def troubled(self, value: T, text: str) -> T:
        """Return the record of a key that cannot be driven now, with the reason."""


@dataclass(frozen=True, slots=True)
class Hooks:
    """Callbacks for metrics, called from the driving threads. They must not raise."""

    timed: Callable[[str, float], None] = lambda group, seconds: None  # after each round of a group
    failed: Callable[[str, Exception], None] = lambda name, error: None  # for each failure of a key or a group
    ended: Callable[[Any], None] = lambda value: None  # with the record of a key that is no longer driven


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
        """Create a kernel over `store`.

        `workers`: threads of each group; 0: everything happens in the calling thread. `report` receives each step
        taken, `complain` each new error, once.
        """
        self._store, self._use, self._leases, self._clock = store, use, leases, clock
        self._report = report
        self._keys = RetryState(clock, complain, seed)
        self._groups = RetryState(clock, complain, seed)
        self._hooks = hooks or Hooks()
        self._under_way = UnderWay(clock, workers)
        self._held: dict[str, int] = {}  # keys whose lease this driver acquired, with its token
        self._observing: dict[str, Sequence[str]] = {}  # leases that each observation under way relies on
        self.rounds = 0
        self.drivable = 0  # keys of the last round that can be driven from here, now or later
        self.abandoned = 0  # pieces of work that never returned

    def round(self, only: Sequence[str] = ()) -> int:
        """Take one step for each active key (or those named); return how many are still active."""
        self._abandon()
        busy = self._under_way.names()  # before the entries are read: a step under way may end a key meanwhile
        entries = self._entries(only)
        if not only:
            self._forget({entry.key for entry in entries}, busy)
        group_of = {entry.key: self._group(entry) for entry in entries}
        groups: dict[str, list[Entry[T]]] = {}
        for entry in self._use.select(entries) if not only else entries:
            group = group_of[entry.key]
            if group is not None and (group, entry.key) not in busy:
                groups.setdefault(group, []).append(entry)
        for group, members in groups.items():
            if (group, "") not in busy:  # its last observation is not over: other groups do not wait for it
                self._under_way.start((group, ""), OBSERVE_SECONDS, partial(self._drive, group, members))
        self.rounds += 1
        self.drivable = sum(1 for group in group_of.values() if group is not None)
        return len(entries)

    def settle(self, seconds: float) -> bool:
        """Wait up to `seconds` for work under way; return whether all of it is over."""
        return self._under_way.settle(seconds)

    def close(self) -> None:
        """Release every lease, without waiting for hung work."""
        self._under_way.close()
        self._leases.close()

    def trouble(self) -> Mapping[str, str]:
        """Return the keys and groups that cannot be driven now, with the reasons."""
        return {**self._groups.texts(), **self._keys.texts()}

    def hanging(self, seconds: float) -> Mapping[str, float]:
        """Return groups, and keys with their group, whose work has been under way for longer than `seconds`."""
        running = self._under_way.running().items()
        return {" ".join(name).strip(): age for name, age in running if age > seconds}

    def alive(self) -> bool:
        """Report whether enough threads are left. Hung threads can only be removed by restarting the process."""
        return self.abandoned < MOST_ABANDONED

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
        except Exception as error:  # an error of one key must not end the round of all  # noqa: BLE001
            if self._keys.due(entry.key, entry.revision):
                self._fail(self._keys, entry.key, error)
                self._keys.seen(entry.key, entry.revision)
            return None

    def _drive(self, group: str, entries: Sequence[Entry[T]]) -> None:
        try:
            self._observe(group, entries)
        except Exception as error:  # an error of the kernel itself or the store: the other groups continue  # noqa: BLE001
            self._fail(self._groups, group, error)
        finally:
            self._observing.pop(group, None)

    def _observe(self, group: str, entries: Sequence[Entry[T]]) -> None:
        """Observe the keys of one group with one call, then start a step for each."""
        due = [entry for entry in entries if self._keys.due(entry.key, entry.revision)]
        # Drive a record that a person changed at once, even while the group waits.
        changed = any(self._keys.changed(entry.key, entry.revision) for entry in due)
        if not due or not (self._groups.due(group) or changed):
            return
        held = [both for entry in due if (both := self._hold(entry))]
        if not held:
            return
        self._observing[group] = [lease.name for _, lease in held]
        began = self._clock.monotonic()
        try:
            with fence.held(lambda: min(self._leases.check(lease) for _, lease in held)):
                seen = self._use.observe(group, [entry for entry, _ in held])
        except LeaseLost:  # another driver has one of the keys: the next round leaves it out
            return
        except Exception as error:  # an error of one group must not end the round of all  # noqa: BLE001
            self._fail(self._groups, group, error)
            blind = self._groups.lasted(group) >= BLIND_SECONDS and _is_blindness(error)
            for entry, lease in held:
                self._record(entry, lease, self._groups.for_record(group))
            if blind:  # let another driver try
                self._leases.resign(*(lease.name for _, lease in held))
                for entry, _ in held:
                    self._keys.rest(entry.key, BLIND_SECONDS)
            return
        self._groups.clear(group)
        for entry, lease in held:
            step = partial(self._step, entry, lease, seen.get(entry.key))
            self._under_way.start((group, entry.key), STEP_SECONDS, step)
        self._hooks.timed(group, self._clock.monotonic() - began)

    def _forget(self, active: Set[str], busy: Set[Name]) -> None:
        """Release the leases of keys that ended elsewhere or were removed."""
        under_way = {key for _, key in busy}
        self._keys.keep_only(active | under_way)
        ended = self._held.keys() - active - under_way
        for key in ended:
            del self._held[key]
        if ended:
            self._leases.release(*map(self._lease_name, ended))

    def _hold(self, entry: Entry[T]) -> tuple[Entry[T], Lease] | None:
        """Return the record and its lease; None if another driver holds it, or if it is no longer driven.

        A record that was read before its lease was taken may be out of date: another driver may have written it since.
        """
        key = entry.key
        try:
            lease = self._leases.hold(self._lease_name(key))
            if lease is None:
                return None
            if self._held.get(key) != lease.token:
                self._held[key] = -1  # not read under this lease yet
                entry = self._store.get(self._use.kind, key)
                self._held[key] = lease.token
            if self._driven(entry):
                return entry, lease
            self._leases.release(lease.name)
        except NotFound:
            self._leases.release(self._lease_name(key))
        except TpukitError as error:
            self._fail(self._keys, key, error)
        return None

    def _lease_name(self, key: str) -> str:
        return f"{self._use.kind.name}/{key}"

    def _step(self, entry: Entry[T], lease: Lease, seen: S | TpukitError | None) -> None:
        """Take one step of one key. Its errors do not affect other keys."""
        try:
            with fence.held(partial(self._leases.check, lease)):
                if isinstance(seen, TpukitError):
                    raise seen
                entry, decision = self._decide(entry, lease, seen)
                if decision.act is not None:
                    entry = self._act(entry, lease, decision)
        except LeaseLost:
            return  # another driver has it: nothing is wrong with the key
        except Exception as error:  # an error of one key must not end the round of all  # noqa: BLE001
            if isinstance(error, NotFound) and self._gone(entry.key):
                self._leases.release(lease.name)
                return
            self._fail(self._keys, entry.key, error)
            self._record(entry, lease, self._keys.for_record(entry.key))
            if self._keys.lasted(entry.key) >= BLIND_SECONDS and _is_blindness(error):
                self._leases.release(lease.name)
                self._keys.rest(entry.key, BLIND_SECONDS)
        else:
            self._keys.clear(entry.key)
            if not self._driven(entry):
                self._leases.release(lease.name)
                self._hooks.ended(entry.value)

    def _abandon(self) -> None:
        """Stop waiting for calls that never return.

        Their leases are released, so that the calls can change nothing if they return later.
        """
        for (group, key), age in self._under_way.abandon().items():
            self.abandoned += 1
            error = Transient(f"no response for {age:.0f} s; abandoned")
            self._fail(self._keys if key else self._groups, key or group, error)
            names = [self._lease_name(key)] if key else self._observing.pop(group, [])
            if names:
                self._leases.resign(*names)

    def _decide(self, entry: Entry[T], lease: Lease, seen: S | None) -> tuple[Entry[T], Decision[T]]:
        """Return the written record and the decision."""
        for last in (False,) * (RACES - 1) + (True,):
            if not self._driven(entry):  # another driver has ended it
                break
            now = self._clock.now()
            decision = self._use.decide(entry.value, seen, now)
            if decision.value == entry.value and not decision.note:
                fresh = self._store.get(self._use.kind, entry.key) if decision.act is not None else entry
                if fresh.revision == entry.revision:
                    return entry, decision
                entry = fresh  # changed since it was listed, and no write would have noticed: decide again
                continue
            try:
                return self._write(entry, lease, decision, now), decision
            except Conflict:
                if not self._still_held(lease):
                    raise LeaseLost(f"another driver took over {lease.name}") from None
                if last:
                    raise
                entry = self._store.get(self._use.kind, entry.key)  # a person requested something: decide again
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
        fence.check()
        try:
            learned = self._use.act(entry.value, decision.act)
        except LeaseLost:
            raise
        except TpukitError as error:
            now = self._clock.now()
            following = self._use.failed(entry.value, decision.act, error, now)
            if following is None:
                raise
            return self._write(entry, lease, following, now)
        return self._learn(entry, lease, learned) if learned else entry

    def _learn(self, entry: Entry[T], lease: Lease, learned: Callable[[T], T]) -> Entry[T]:
        """Write what an act returned, preserving a person's concurrent change of the record."""
        for last in (False,) * (RACES - 1) + (True,):
            value = learned(entry.value)
            if value == entry.value:
                break
            try:
                return self._store.put(self._use.kind, entry, value, lease=lease)
            except Conflict:
                if not self._still_held(lease):
                    raise LeaseLost(f"another driver took over {lease.name}") from None
                if last:
                    raise
                entry = self._store.get(self._use.kind, entry.key)
        return entry

    def _gone(self, key: str) -> bool:
        """Report whether the record was removed."""
        try:
            self._store.get(self._use.kind, key)
        except NotFound:
            return True
        except TpukitError:
            return False
        return False

    def _fail(self, state: RetryState, name: str, error: Exception) -> None:
        state.add(name, error)
        self._hooks.failed(name, error)

    def _record(self, entry: Entry[T], lease: Lease, text: str) -> None:
        """Write to the record why it does not move, and note the failed revision, to notice a person's change."""
        self._keys.seen(entry.key, entry.revision)
        if not text:
            return
        try:
            fresh = self._store.get(self._use.kind, entry.key)
            value = self._use.troubled(fresh.value, text)
            if value != fresh.value:
                written = self._store.put(self._use.kind, fresh, value, lease=lease)
                if fresh.revision == entry.revision:
                    self._keys.seen(entry.key, written.revision)
        except TpukitError:
            return  # the store is unreachable, or another driver owns the key by now


def _is_blindness(error: Exception) -> bool:
    """Report whether another driver could do better, because its network, rights or version differ.

    A race or an unfinished operation is the same for all drivers.
    """
    return not isinstance(error, (Conflict, NotYet))
