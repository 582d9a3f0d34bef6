"""Count how long hosts have not moved, from evidence alone.

Seconds count only between two readings of a host's progress, on a clock that stands still while the machine sleeps, and
at most `MOST_AT_ONCE` at a time. A sleeping machine, a clock that was set back, a broken stream or a driver that was
stopped for an hour therefore never makes a host count as hung.

Hosts that report no step may say that they compute (XLA compiles) or save. Those seconds are counted separately, for
all hosts of the attempt: the others wait for that one. They do not count while a host gives no sign of life at all.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tpukit.places.base import HostView

MOST_AT_ONCE = 10.0
BUSY_CORES = 0.5
"""Processor time per second from which a host computes. One that waits for its peers takes a few hundredths."""
FROZEN_SECONDS = 60.0
"""Seconds of readable silence after which a host is frozen, if another one gives signs of life."""


@dataclass(frozen=True, slots=True)
class _Last:
    step: int | None
    early: bool
    heard: float
    idle: float
    excused: float = 0.0
    silent: float = 0.0  # readable seconds since the last step or sign of life
    beat: float = 0.0
    cpu: float = 0.0
    busy: bool = False  # between the last two signs of life


class Liveness:
    """Idle times of the attempts that one process drives. A driver that takes over starts counting from zero."""

    def __init__(self) -> None:
        self._last: dict[tuple[str, int, str], _Last] = {}

    def count(
        self, job_id: str, attempt: int, hosts: Iterable[HostView], *, running: bool = True
    ) -> tuple[HostView, ...]:
        """Return the hosts with `idle`, `excused` and `frozen` filled in.

        `running`: all of them have started, so none waits for another.
        """
        views = tuple(hosts)
        keys = [(job_id, attempt, host.name) for host in views]
        before = [self._last.get(key) for key in keys]
        now = [_counted(last, host, running) for last, host in zip(before, views, strict=True)]
        frozen = _frozen(now)
        if not any(frozen) and any(one.busy and one.silent < FROZEN_SECONDS for one in now if one):
            now = [_excused(*both) for both in zip(before, now, strict=True)]
        self._last.update({key: one for key, one in zip(keys, now, strict=True) if one})
        return tuple(_shown(*one) for one in zip(views, now, frozen, strict=True))

    def keep_only(self, job_ids: Iterable[str]) -> None:
        """Forget jobs that are no longer driven. Iterates over a copy, because other threads may count meanwhile."""
        active = set(job_ids)
        for key in [key for key in list(self._last) if key[0] not in active]:
            self._last.pop(key, None)


def _counted(last: _Last | None, host: HostView, running: bool) -> _Last | None:
    """Return what is known of a host now; None for one that reports nothing, as most hosts of a large job."""
    if last is None and host.step is None and not host.heard:
        return None
    if last is None or not running or (last.step, last.early) != (host.step, host.early):
        return _Last(host.step, host.early, host.heard, 0.0, beat=host.beat, cpu=host.cpu, busy=host.saves)
    passed = min(max(0.0, host.heard - last.heard), MOST_AT_ONCE)
    beats = host.beat > last.beat
    busy = _computes(last, host) if beats else last.busy
    silent = 0.0 if beats else last.silent + passed
    return _Last(
        *(host.step, host.early, host.heard, last.idle + passed, last.excused),
        *(silent, host.beat, host.cpu, busy),
    )


def _excused(last: _Last | None, now: _Last | None) -> _Last | None:
    """Return the host with the seconds since the last reading excused, if it was silent for them."""
    if last is None or now is None or now.idle <= last.idle:
        return now
    return replace(now, excused=last.excused + now.idle - last.idle)


def _shown(host: HostView, now: _Last | None, frozen: bool) -> HostView:
    if now is None or (now.idle, now.excused, frozen) == (host.idle, host.excused, host.frozen):
        return host
    return replace(host, idle=now.idle, excused=now.excused, frozen=frozen)


def _computes(last: _Last, host: HostView) -> bool:
    """Return whether a host saves, or computed between its last two signs of life; unknown after only one."""
    seconds = host.beat - last.beat
    return host.saves or (last.beat > 0.0 and (host.cpu - last.cpu) / seconds >= BUSY_CORES)


def _frozen(hosts: Sequence[_Last | None]) -> list[bool]:
    lives = any(one is not None and one.beat > 0.0 and one.silent < FROZEN_SECONDS for one in hosts)
    return [one is not None and lives and one.silent >= FROZEN_SECONDS for one in hosts]
