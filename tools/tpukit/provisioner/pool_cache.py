"""GKE's pools and operations as last listed, updated with our requests since then. One list serves all pools."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tpukit.core.clock import Clock
from tpukit.google.gke import Gke, NodePool, Operation

BUSY_SECONDS, NEEDED_SECONDS, IDLE_SECONDS = 5.0, 15.0, 300.0
"""Seconds between two lists: while something changes, while pods wait, and otherwise."""
_SHARE = 20.0
"""Listing takes at most a twentieth of the time, however many pools there are."""
_LONGEST_WAIT = 60.0
"""Longest wait that a slow list causes: the process may have been suspended, or one response slow."""


@dataclass(frozen=True, slots=True)
class Intervals:
    busy: float = BUSY_SECONDS
    needed: float = NEEDED_SECONDS
    idle: float = IDLE_SECONDS


class PoolCache:
    """The cached pools and operations. Safe from any thread."""

    def __init__(
        self,
        gke: Gke,
        clock: Clock,
        intervals: Intervals | None = None,
        finished: Callable[[Operation], None] = lambda operation: None,
    ) -> None:
        self._gke, self._clock, self._intervals = gke, clock, intervals or Intervals()
        self._finished = finished  # called once for each operation that was under way and is done
        self._lock = threading.Lock()
        self._pools: dict[str, NodePool] = {}
        self._operations: dict[str, Operation] = {}
        self._listed = float("-inf")
        self._took = 0.0
        self._asked: dict[str, float] = {}  # pools that were created or deleted, and when
        self._stale = True
        self.lists = 0

    @property
    def pools(self) -> Mapping[str, NodePool]:
        with self._lock:
            return dict(self._pools)

    @property
    def operations(self) -> tuple[Operation, ...]:
        with self._lock:
            return tuple(self._operations.values())

    def busy(self) -> bool:
        with self._lock:
            return any(not one.done for one in self._operations.values()) or any(
                one.status in ("PROVISIONING", "STOPPING", "RECONCILING") for one in self._pools.values()
            )

    def refresh(self, now: float, *, needed: bool) -> None:
        """List again if it is due. Errors of GKE are raised and leave the lists unchanged."""
        began = self._clock.monotonic()
        busy = self.busy()
        wait = self._intervals.busy if busy else self._intervals.needed if needed else self._intervals.idle
        if not self._stale and began - self._listed < max(wait, min(_LONGEST_WAIT, _SHARE * self._took)):
            return
        pools = self._gke.pools()
        operations = self._gke.operations() if needed or busy or self._stale else ()
        with self._lock:
            # A list that was requested before a call returned does not include that call.
            since = {name for name, at in self._asked.items() if at >= began}
            later = {name: pool for name, pool in self._pools.items() if name in since}
            under_way = {one.name: one for one in self._operations.values() if one.target in since}
            listed = {one.name: one for one in pools if one.name not in since}
            self._pools = {**listed, **later}
            running = {name for name, one in self._operations.items() if not one.done}
            done = [one for one in operations if one.done and one.name in running]
            self._operations = {**{one.name: one for one in operations}, **under_way}
            self._asked = {name: at for name, at in self._asked.items() if name in since}
            self._listed = self._clock.monotonic()
            self._took, self._stale = self._listed - began, False
            self.lists += 1
        for one in done:
            self._finished(one)

    def doubt(self) -> None:
        """List again before anything else, because a response was lost."""
        self._stale = True

    def created(self, pool: NodePool, operation: Operation) -> None:
        with self._lock:
            self._asked[pool.name] = self._clock.monotonic()
            self._pools.setdefault(pool.name, pool)
            self._operations[operation.name] = operation

    def deleted(self, name: str, operation: Operation | None) -> None:
        with self._lock:
            self._asked[name] = self._clock.monotonic()
            if operation is None:
                self._pools.pop(name, None)
                return
            self._operations[operation.name] = operation
            if name in self._pools:
                self._pools[name] = replace(self._pools[name], status="STOPPING")
