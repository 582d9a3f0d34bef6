"""Count how long hosts have not moved, from evidence alone.

Seconds count only between two readings of a host's progress, on a clock that stands still while the machine sleeps, and
at most `MOST_AT_ONCE` at a time. A sleeping machine, a clock that was set back, a broken stream or a driver that was
stopped for an hour therefore never makes a host count as hung.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from tpukit.places.base import HostView

MOST_AT_ONCE = 10.0


@dataclass(frozen=True, slots=True)
class _Last:
    step: int | None
    early: bool
    heard: float
    idle: float


class Liveness:
    """Idle times of the attempts that one process drives. A driver that takes over starts counting from zero."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, str], _Last] = {}

    def count(
        self, job_id: str, attempt: int, hosts: Iterable[HostView], *, running: bool = True
    ) -> tuple[HostView, ...]:
        """Return the hosts with `idle` filled in. `running`: all of them have started, so none waits for another."""
        return tuple(self._counted((job_id, attempt, host.name), host, running) for host in hosts)

    def _counted(self, key: tuple[str, int, str], host: HostView, running: bool) -> HostView:
        last = self._last.get(key)
        if last is None and host.step is None and not host.heard:
            return host  # most hosts of a large job report nothing, so nothing is kept for them
        idle = 0.0
        if last and running and (last.step, last.early) == (host.step, host.early):
            idle = last.idle + min(max(0.0, host.heard - last.heard), MOST_AT_ONCE)
        self._last[key] = _Last(host.step, host.early, host.heard, idle)
        return host if idle == host.idle else replace(host, idle=idle)

    def keep_only(self, job_ids: Iterable[str]) -> None:
        """Forget jobs that are no longer driven. Iterates over a copy, because other threads may count meanwhile."""
        active = set(job_ids)
        for key in [key for key in list(self._last) if key[0] not in active]:
            self._last.pop(key, None)
