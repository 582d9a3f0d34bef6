"""The true owner of each key, and the invariant that only the machine that last acquired the lease acts."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from simulation.world import World
    from tpukit.kernel.store import Lease

ON_THE_WIRE = 5.0
"""Seconds for which a request may be in transit after its fence was checked."""


class Owners:
    """The store, with a record of each lease that changes owner."""

    def __init__(self, world: World, store: Any) -> None:
        self._world, self._store = world, store
        self._last: dict[str, tuple[int, str, float]] = {}  # token, machine and time of the last take-over, by lease

    def over(self, store: Any) -> Owners:
        """Return owners over another backend that keep the record of leases."""
        made = Owners(self._world, store)
        made._last = self._last
        return made

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)

    def acquire(self, name: str, holder: Any, seconds: float) -> Lease | None:
        lease: Lease | None = self._store.acquire(name, holder, seconds)
        if lease is not None:
            machine, known = lease.holder.name.partition("/")[0], self._last.get(name)
            if known is None or known[1] != machine:
                self._last[name] = lease.token, machine, self._world.scheduler.now
        return lease

    def check(self, name: str, what: str) -> None:
        """Check an act on an object that the lease `name` protects, before the act."""
        world = self._world
        known = self._last.get(name)
        if known is None or not world.acting.startswith("machine-") or known[1] == world.acting:
            return
        since = world.scheduler.now - known[2]
        if since > ON_THE_WIRE:
            world.violate("fenced", f"{what}, which {known[1]} has owned for {since:.0f} s")
