"""Drives fleets: the kernel with the Cloud TPU API, hosts and a bucket behind it. Several may run at once."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from tpukit.clock import Clock
from tpukit.control import Decision, Kernel, Leases
from tpukit.errors import Conflict, Invalid, NoCapacity, NotFound, TpukitError
from tpukit.fleet.act import Acting
from tpukit.fleet.decide import Seen, decide, refused
from tpukit.fleet.observe import observe
from tpukit.fleet.progress import Progress
from tpukit.fleet.records import ACTIVE, WORKERS, Worker, home_of
from tpukit.store import Entry, Event, Holder, Store, change, everything

OBJECTS_SECONDS = 10.0
"""How old may be what the bucket said."""


class FleetUse:
    """What the kernel needs to know of fleets."""

    kind = WORKERS
    states: Sequence[str] = ACTIVE

    def __init__(self, acting: Acting, progress: Callable[[str], Progress], clock: Clock) -> None:
        self._acting, self._progress, self._clock = acting, progress, clock
        self._marks: dict[str, tuple[object, float]] = {}  # what was last new of each worker, and when
        self._read: dict[str, tuple[float, Progress]] = {}

    def select(self, entries: Sequence[Entry[Worker]]) -> Sequence[Entry[Worker]]:
        return entries

    def group(self, worker: Worker) -> str | None:
        return worker.zone

    def observe(self, group: str, entries: Sequence[Entry[Worker]]) -> Mapping[str, Seen | TpukitError]:
        workers = {entry.key: entry.value for entry in entries}
        seen = observe(self._acting.client, self._acting.reach, workers, self._recent)
        return {key: dataclasses.replace(one, quiet=self._quiet(key, one)) for key, one in seen.items()}

    def decide(self, worker: Worker, seen: Seen | None, now: float) -> Decision[Worker]:
        return Decision(worker) if seen is None else decide(worker, seen, now)

    def act(self, worker: Worker, act: Any) -> None:
        self._acting.act(worker, act)

    def failed(self, worker: Worker, act: Any, error: TpukitError, now: float) -> Decision[Worker] | None:
        if not isinstance(error, (NoCapacity, Invalid)):
            return None
        return refused(worker, act, str(error), for_good=isinstance(error, Invalid))

    def troubled(self, worker: Worker, text: str) -> Worker:
        return replace(worker, message=text)

    def _quiet(self, key: str, seen: Seen) -> float:
        """Counted while somebody looks, on a clock that nobody sets: a lid that was closed is no silence."""
        host, now = seen.host, self._clock.monotonic()
        mark = (seen.node_id, host.running, host.moved) if host else (seen.node_id, seen.shards)
        if self._marks.get(key, (None, 0.0))[0] != mark:
            self._marks[key] = mark, now
        return now - self._marks[key][1]

    def _recent(self, output: str) -> Progress:
        at, made = self._read.get(output, (float("-inf"), Progress()))
        if self._clock.monotonic() - at >= OBJECTS_SECONDS:
            made = self._progress(output)
            self._read[output] = self._clock.monotonic(), made
        return made


class Driver:
    """The kernel over workers."""

    def __init__(
        self,
        store: Store,
        acting: Acting,
        progress: Callable[[str], Progress],
        clock: Clock,
        holder: Holder,
        *,
        workers: int = 0,
        report: Callable[[str, str], None] = lambda key, text: None,
        complain: Callable[[str, str], None] = lambda key, text: None,
    ) -> None:
        self._store = store
        self.leases = Leases(store, holder, clock)
        if workers:
            self.leases.keep()
        use = FleetUse(acting, progress, clock)
        self.kernel: Kernel[Worker, Seen] = Kernel(
            store, use, self.leases, clock, workers=workers, report=report, complain=complain
        )

    def round(self, fleet: str) -> int:
        """One step for each worker of a fleet that is not done; how many there are."""
        active = [entry.key for entry in everything(self._store, WORKERS, states=ACTIVE) if entry.value.fleet == fleet]
        return self.kernel.round(active) if active else 0

    def close(self) -> None:
        self.kernel.close()


def of(store: Store, fleet: str) -> list[Worker]:
    every = [entry.value for entry in everything(store, WORKERS) if entry.value.fleet == fleet]
    return sorted((one for one in every if one.state != "gone"), key=lambda one: (one.zones[0], one.number))


def want(
    store: Store,
    fleet: str,
    workers: Sequence[Worker],
    there: Mapping[str, str],
    now: float,
    *,
    only: bool = True,
    again: bool = False,
) -> None:
    """Make the records say what a person wants now: these workers and, with `only`, no other ones of the fleet. With
    `again`, those that are done look whether there is more to do.

    `there`: zones of what the fleet has, by slot (`located`). What is there without a record was made by a driver
    elsewhere: it is taken over or, with `only`, deleted."""
    for worker in workers:
        zone = there.get(worker.slot, worker.zone)
        _put(store, replace(worker, zone=zone if zone in worker.zones else worker.zone), now, again=again)
    if only:
        wanted = {worker.slot for worker in workers}
        discard(store, fleet, there, now, lambda slot: slot not in wanted)


def forget_seen(store: Store, fleet: str) -> None:
    """For who waits until workers are ready or launched: what was seen of them before is no answer. A round may be slow
    or fail, and the records would go on saying what was true then."""
    for entry in everything(store, WORKERS, states=ACTIVE):
        if entry.value.fleet == fleet and _unseen(entry.value) != entry.value:
            change(store, WORKERS, entry.key, _unseen)


def _unseen(worker: Worker) -> Worker:
    # Nobody looks at one that is done again: what is known of it stays.
    return replace(worker, tpu_state="", ran=0) if worker.state in ACTIVE else worker


def discard(store: Store, fleet: str, there: Mapping[str, str], now: float, meant: Callable[[str], bool]) -> int:
    """Make the records say that workers of these slots are to go, also those that only a driver elsewhere knows; how
    many there are."""
    surplus = {one.slot: one for one in of(store, fleet) if meant(one.slot)}
    for slot, zone in there.items():
        if slot not in surplus and meant(slot) and (home := home_of(slot)):
            surplus[slot] = Worker(fleet, list(dict.fromkeys((home[0], zone))), home[1], "", now, zone)
    for one in surplus.values():
        _discard(store, replace(one, wanted="gone", state="active", moving=False), now)
    return len(surplus)


def _discard(store: Store, gone: Worker, now: float) -> None:
    def how(old: Worker) -> Worker:
        # One that was gone came back elsewhere: where it is now counts.
        return gone if old.state == "gone" else replace(old, wanted="gone", state="active", moving=False)

    _change(store, gone, how, "it is to go", now)


def _put(store: Store, worker: Worker, now: float, *, again: bool) -> None:
    def wanted(old: Worker) -> Worker:
        if old.state == "gone":
            return worker
        state = "done" if old.state == "done" and old.work == worker.work and not again else "active"
        work = worker.work or old.work
        return replace(
            old,
            zones=worker.zones if old.zone in worker.zones else old.zones,
            tpu_type=worker.tpu_type,
            spot=worker.spot,
            move_after=worker.move_after,
            wanted="work" if work else worker.wanted,
            work=work,
            state=state,
            failures=0,
            # What ended is asked about no more; what runs is known by its own number.
            attempt=old.attempt if old.state == "active" or state == "done" else 0,
        )

    _change(store, worker, wanted, "", now)


def _change(store: Store, worker: Worker, how: Callable[[Worker], Worker], note: str, now: float) -> None:
    try:
        change(store, WORKERS, worker.key, how, note=note, at=now)
    except NotFound:
        try:
            store.create(WORKERS, worker.key, worker, events=[Event(now, "added")])
        except Conflict:  # somebody was faster
            change(store, WORKERS, worker.key, how, note=note, at=now)
