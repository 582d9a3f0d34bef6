"""Leases of this process: acquired when a key is first driven, renewed, checked before acts, released."""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, LeaseLost, TpukitError, Transient
from tpukit.kernel.store import Holder, Lease, Store

SECONDS = 45.0
"""Seconds of silence after which the keys of a driver on another machine are taken over.

A dead process of this machine loses them at once.
"""


log = logging.getLogger("tpukit.kernel")


class Leases:
    """The leases that one process holds. Thread-safe.

    The age of a lease is measured on the clock that counts suspended time, from before the renewing request was sent.
    A process that was suspended for longer than its lease therefore notices when it resumes.
    """

    def __init__(self, store: Store, holder: Holder, clock: Clock, *, seconds: float = 0.0) -> None:
        self.holder = holder
        self._seconds = seconds or SECONDS
        self._third = self._seconds / 3  # a lease older than this is renewed; an act needs this much of it
        self._store, self._clock = store, clock
        self._held: dict[str, tuple[Lease, float]] = {}  # with the moment of the last renewal
        self._lock = threading.Lock()
        self._closed = threading.Event()

    def hold(self, name: str) -> Lease | None:
        """Return the lease, renewed if it is due; None while another driver holds it."""
        with self._lock:
            known = self._held.get(name)
        now = self._clock.elapsed()
        if known and now - known[1] < self._third:
            return known[0]
        lease = self._store.acquire(name, self.holder, self._seconds)
        with self._lock:
            if lease is None:
                self._held.pop(name, None)
            else:
                self._held[name] = lease, now
        return lease

    def holds(self, name: str) -> bool:
        with self._lock:
            return name in self._held

    def check(self, lease: Lease) -> float:
        """Return for how many seconds `lease` is certainly held; renew it first if that is too short for an act.

        Raises:
            LeaseLost: The lease was released or taken over since it was acquired.
        """
        with self._lock:
            known = self._held.get(lease.name)
        if known is None or known[0].token != lease.token:
            raise LeaseLost(f"the lease on {lease.name} was released or taken over")
        left = self._seconds - (self._clock.elapsed() - known[1])
        if left >= self._third:
            return left
        try:
            return self._renew(known[0])
        except Transient as error:
            if left > 0:
                return left
            raise LeaseLost(f"the lease on {lease.name} expired while the store was unreachable") from error

    def lost(self, name: str) -> None:
        """Forget a lease that another driver holds, after a refused write."""
        with self._lock:
            self._held.pop(name, None)

    def release(self, *names: str) -> None:
        """Release the named leases, or all."""
        with self._lock:
            leases = [self._held.pop(name)[0] for name in (names or tuple(self._held)) if name in self._held]
        for lease in leases:
            with suppress(TpukitError):  # it lapses by itself
                self._store.release(lease)

    resign = release

    def renew(self) -> None:
        """Renew the leases that are due."""
        now = self._clock.elapsed()
        with self._lock:
            due = [lease for lease, at in self._held.values() if now - at >= self._third]
        for lease in due:
            with suppress(TpukitError):  # lost, or the store is unreachable: the next check or write notices
                self._renew(lease)

    def _renew(self, lease: Lease) -> float:
        now = self._clock.elapsed()
        try:
            renewed = self._store.renew(lease, self._seconds)
        except Conflict as error:
            self.lost(lease.name)
            raise LeaseLost(f"another driver took over {lease.name}") from error
        with self._lock:
            known = self._held.get(lease.name)
            if known is None or known[0].token != lease.token:
                raise LeaseLost(f"the lease on {lease.name} was released")
            self._held[lease.name] = renewed, now
        return self._seconds - (self._clock.elapsed() - now)

    def keep(self) -> None:
        """Renew in a background thread from now on: an act may take longer than a lease."""
        threading.Thread(target=self._keep, name="leases", daemon=True).start()

    def _keep(self) -> None:
        while not self._closed.wait(self._third / 2):
            try:
                self.renew()
            except Exception:  # for example a closed store: the next act checks whether the lease is held
                log.debug("leases were not renewed", exc_info=True)

    def close(self) -> None:
        self._closed.set()
        self.release()
