"""User requests for a fleet, written into the records of its workers. Drivers carry them out.

A record that cannot be read (a newer version wrote it) counts as active: it is neither changed nor deleted, and the
others continue.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from msgspec.structs import replace

from tpukit.core.errors import Conflict, NotFound
from tpukit.fleet.listing import Located
from tpukit.fleet.ownership import Identity
from tpukit.fleet.records import ACTIVE, WORKERS, Worker, home_of
from tpukit.kernel.store import Event, Store, change, everything
from tpukit.kernel.store import unreadable as broken


def of(store: Store, fleet: str) -> list[Worker]:
    every = [entry.value for entry in everything(store, WORKERS) if entry.value.fleet == fleet]
    return sorted((one for one in every if one.state != "gone"), key=lambda one: (one.zones[0], one.number))


def unreadable(store: Store, fleet: str) -> dict[str, str]:
    """Return the keys of records that may be of this fleet and cannot be read, with the reasons."""
    return {one.key: one.why for one in broken(store, WORKERS) if one.key.startswith(f"{fleet}-")}


def want(
    store: Store,
    fleet: str,
    workers: Sequence[Worker],
    there: Located,
    now: float,
    *,
    only: bool = True,
    again: bool = False,
) -> None:
    """Update the records to these workers and, with `only`, no other ones of the fleet.

    With `again`, workers that are done check for more work. `there` is what the fleet has: TPU VMs without a record
    were made by a driver elsewhere, and are adopted or, with `only`, deleted. The caller has checked their owner.
    """
    closed = unreadable(store, fleet)
    for worker in workers:
        if worker.key in closed:
            continue
        zone = there.zone_of(worker.slot)
        _put(store, replace(worker, zone=zone if zone in worker.zones else worker.zone), now, again=again)
    if only and workers:
        wanted, first = {worker.slot for worker in workers}, workers[0]
        me = Identity(first.owner, first.store)
        discard(store, fleet, there, now, lambda slot: slot not in wanted, me=me, adopted=first.adopted)


def adopt(store: Store, fleet: str, me: Identity, marks: Iterable[str]) -> None:
    """Assign the records of a fleet to this user, including everything with these marks."""
    more = list(marks)

    def mine(old: Worker) -> Worker:
        return replace(old, owner=me.owner, store=me.store, adopted=_joined(old, me, more))

    for entry in everything(store, WORKERS):
        if entry.value.fleet == fleet and entry.value.state != "gone" and mine(entry.value) != entry.value:
            change(store, WORKERS, entry.key, mine)


def _joined(old: Worker, me: Identity, more: Iterable[str]) -> list[str]:
    every = dict.fromkeys((*old.adopted, old.mark, *more))
    return [mark for mark in every if mark != me.mark]


def forget_seen(store: Store, fleet: str) -> None:
    """Clear earlier observations of workers, for a command that waits until they are ready or launched.

    A round may be slow or fail, and the records would still show an outdated state.
    """
    for entry in everything(store, WORKERS, states=ACTIVE):
        if entry.value.fleet == fleet and _unseen(entry.value) != entry.value:
            change(store, WORKERS, entry.key, _unseen)


def _unseen(worker: Worker) -> Worker:
    # A worker that is done is not observed again, so keep what is known of it.
    return replace(worker, tpu_state="", ran=0) if worker.state in ACTIVE else worker


def discard(
    store: Store,
    fleet: str,
    there: Located,
    now: float,
    meant: Callable[[str], bool],
    *,
    me: Identity,
    adopted: Sequence[str] = (),
) -> int:
    """Mark the workers of these slots for deletion, and return their number.

    This includes workers known only to a driver elsewhere.
    """
    closed = unreadable(store, fleet)
    surplus = {one.slot: one for one in of(store, fleet) if meant(one.slot)}
    for slot, pieces in there.pieces.items():
        if slot not in surplus and meant(slot) and (home := home_of(slot)):
            zones = list(dict.fromkeys((home[0], *(one.zone for one in pieces))))
            made = Worker(fleet, zones, home[1], "", now, there.zone_of(slot), used=zones)
            surplus[slot] = replace(made, owner=me.owner, store=me.store, adopted=list(adopted))
    for one in surplus.values():
        if one.key not in closed:
            _discard(store, replace(one, wanted="gone", state="active", moving=False), now)
    return len(surplus)


def _discard(store: Store, gone: Worker, now: float) -> None:
    def how(old: Worker) -> Worker:
        # A deleted worker that was recreated elsewhere counts where it is now.
        return gone if old.state == "gone" else replace(old, wanted="gone", state="active", moving=False)

    _change(store, gone, how, "it is being deleted", now)


def _put(store: Store, worker: Worker, now: float, *, again: bool) -> None:
    me = Identity(worker.owner, worker.store)

    def wanted(old: Worker) -> Worker:
        if old.state == "gone":
            return replace(worker, used=_both(old.used, worker.used), asked=old.asked)
        if old.owner and old.mark not in (worker.mark, *worker.adopted):
            raise Conflict(f"Fleet `{worker.fleet}` belongs to {old.owner}.", hint="name another fleet with --name")
        state = "done" if old.state == "done" and old.work == worker.work and not again else "active"
        work = worker.work or old.work
        return replace(
            old,
            zones=worker.zones if old.zone in worker.zones else old.zones,
            tpu_type=worker.tpu_type,
            spot=worker.spot,
            move_after=worker.move_after,
            unattended=worker.unattended,
            wanted="work" if work else worker.wanted,
            work=work,
            state=state,
            failures=0,
            owner=worker.owner,
            store=worker.store,
            adopted=_joined(old, me, worker.adopted),
            # A zone that is no longer wanted may still have objects of it.
            used=_both(old.used, [old.zone]),
            # Ended attempts are not queried any more; running ones are known by their own number.
            attempt=old.attempt if old.state == "active" or state == "done" else 0,
            launched=max(old.launched, old.attempt),
        )

    _change(store, worker, wanted, "", now)


def _both(some: Sequence[str], more: Sequence[str]) -> list[str]:
    return list(dict.fromkeys((*some, *more)))


def _change(store: Store, worker: Worker, how: Callable[[Worker], Worker], note: str, now: float) -> None:
    try:
        change(store, WORKERS, worker.key, how, note=note, at=now)
    except NotFound:
        try:
            store.create(WORKERS, worker.key, worker, events=[Event(now, "added")])
        except Conflict:  # another command created it meanwhile
            change(store, WORKERS, worker.key, how, note=note, at=now)
