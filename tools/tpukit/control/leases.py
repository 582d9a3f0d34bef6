"""The leases that this process holds: taken when a key is first driven, prolonged, and given back."""

from __future__ import annotations

import threading
from contextlib import suppress

from tpukit.clock import Clock
from tpukit.errors import Conflict, TpukitError
from tpukit.store import Holder, Lease, Store

SECONDS = 45.0
"""How long a driver on another machine may be away before its keys go to somebody else. A process of this machine that
is dead loses them at once."""
RENEW = SECONDS / 3


class Leases:
    """Safe from any thread."""

    def __init__(self, store: Store, holder: Holder, clock: Clock) -> None:
        self.holder = holder
        self._store, self._clock = store, clock
        self._held: dict[str, tuple[Lease, float]] = {}  # with the moment, while awake, at which it was last prolonged
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def hold(self, name: str) -> Lease | None:
        """The lease, prolonged if it is about time; None while somebody else has it."""
        with self._lock:
            known = self._held.get(name)
        now = self._clock.monotonic()
        if known and now - known[1] < RENEW:
            return known[0]
        lease = self._store.acquire(name, self.holder, SECONDS)
        with self._lock:
            if lease is None:
                self._held.pop(name, None)
            else:
                self._held[name] = lease, now
        return lease

    def lost(self, name: str) -> None:
        """Somebody else has it, as a refused write has shown."""
        with self._lock:
            self._held.pop(name, None)

    def release(self, *names: str) -> None:
        """Those named, or all."""
        with self._lock:
            leases = [self._held.pop(name)[0] for name in (names or tuple(self._held)) if name in self._held]
        for lease in leases:
            with suppress(TpukitError):  # it lapses by itself
                self._store.release(lease)

    def renew(self) -> None:
        """Prolong what is held and due."""
        with self._lock:
            due = [(name, lease) for name, (lease, at) in self._held.items() if self._clock.monotonic() - at >= RENEW]
        for name, lease in due:
            try:
                renewed = self._store.renew(lease, SECONDS)
            except Conflict:
                self.lost(name)
            except TpukitError:
                continue  # the store is away: whoever writes next finds out whether the lease still holds
            else:
                with self._lock:
                    if name in self._held:
                        self._held[name] = renewed, self._clock.monotonic()

    def keep(self) -> None:
        """Prolong in the background from now on: an act may take longer than a lease."""
        threading.Thread(target=self._keep, name="leases", daemon=True).start()

    def _keep(self) -> None:
        while not self._closed.wait(RENEW / 2):
            with suppress(TpukitError):
                self.renew()

    def close(self) -> None:
        self._closed.set()
        self.release()
