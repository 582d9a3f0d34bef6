"""Inject a loss into a run at the planned moment."""

from __future__ import annotations

import math
import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.drill import processes
from tpukit.drill.following import Following
from tpukit.drill.limits import Limits
from tpukit.drill.losses import DURING_SAVE, Again, Damage, Loss, Struck, What, When
from tpukit.drill.parts import Parts
from tpukit.drill.saves import QUIET, Save
from tpukit.drill.sites import Host, Site

SHARE = {When.SAVE_BEGINS: 0.0, When.SAVE_HALF: 0.5, When.SAVE_ENDS: 0.9}
"""Shares of the length of a save in the unbroken run."""
DEAD_SECONDS = 5.0
"""Seconds that processes may take to exit after signal 9."""


Hosts = Mapping[tuple[int, int], Host]
"""Running hosts."""


class Strike:
    """Injection of one loss into one run.

    On a busy machine the program goes on between a look and a strike. Where the moment decides what the loss shows, the
    hosts are stopped first, and go on unharmed if the moment has passed: another one comes.
    """

    def __init__(
        self,
        loss: Loss,
        site: Site,
        clock: Clock,
        workdir: Path,
        limits: Limits,
    ) -> None:
        self._loss, self._site, self._clock, self._workdir, self._limits = loss, site, clock, workdir, limits
        self._leaving: list[tuple[int, float]] = []
        self.struck: list[Struck] = []
        self._missed = 0  # moments that had passed when the hosts were stopped
        self.damaged = ""  # the damaged file

    @property
    def quickest(self) -> float:
        """Return the seconds of what it awaits, if known: a save may be shorter than a step."""
        return math.inf if self._loss.when is When.AT_STEP else self._limits.saving_seconds or math.inf

    def consider(self, attempt: int, hosts: Hosts, seen: Following, now: float) -> None:
        """Strike if the moment has come. Call it after every look at the run."""
        self._end_grace(hosts, now)
        if not hosts:
            return
        loss = self._loss
        first = self.struck[0] if self.struck else None
        if first is None:
            due = self._due(seen, now)
        else:
            due = len(self.struck) == 1 and attempt > first.attempt and self._due_again(seen, now)
        if due and all(host in hosts for host in loss.hosts) and (first or self._is_in_time(hosts, seen)):
            self._strike(attempt, hosts, seen, self._clock.now())

    def _is_in_time(self, hosts: Hosts, seen: Following) -> bool:
        """Return whether the moment is there. Hosts that are struck at a precise one are left stopped if it is."""
        during = self._loss.when in DURING_SAVE
        after = self._loss.when is When.SAVED
        if not (during or after or self._awaits_work or self._precedes_saves):
            return True
        stopped = processes.stop(_pids(hosts, self._loss), self._clock)
        seen.poll(tuple(hosts.values()), self._clock.now())
        if during:
            there = self._saving(seen) is not None and seen.saves.is_writing
        elif after:
            self._clock.sleep(1.1 * QUIET)  # a save that just ended is known as finished then
            seen.poll(tuple(hosts.values()), self._clock.now())
            there = seen.saves.current is None and (self._limits.last < 0 or seen.step < self._limits.last)
        elif self._awaits_work:
            there = seen.step in self._limits.unsaved
        else:
            saved = any(save.step >= 0 for save in seen.saves.history)
            there = not saved and seen.step < self._limits.first_save
        if not there:
            self._missed += 1
            processes.signal_all(stopped, signal.SIGCONT)
        return there

    @property
    def _awaits_work(self) -> bool:
        """Return whether the loss shows nothing directly after a save, when there is nothing to save."""
        return self._loss.what in (What.TERM, What.PREEMPT) and bool(self._limits.unsaved)

    @property
    def _precedes_saves(self) -> bool:
        return self._loss.when is When.AT_STEP and self._loss.step < self._limits.first_save

    def _saving(self, seen: Following) -> Save | None:
        """Return the save in progress if it is one to strike, and has data."""
        saves, current = seen.saves, seen.saves.current
        if current is None or current.step <= self._loss.step:
            return None
        return current if saves.consists.has_data(current.paths, current.step) else None

    def _damage(self, save: Save | None, consists: Parts) -> str:
        """Damage the newest checkpoint, and return the damaged file."""
        names = consists.data(save.paths, save.step) if save else ()
        present = [path for name in names if (path := self._workdir / name).is_file()]
        if not present:
            return ""
        victim = max(present, key=lambda path: path.stat().st_size)
        size = victim.stat().st_size
        if self._loss.damage is Damage.TRUNCATE:
            os.truncate(victim, size // 2)
        else:
            with victim.open("r+b") as file:
                file.seek(size // 2)
                file.write(b"\xa5" * max(1, min(64, size // 4)))
        return str(victim.relative_to(self._workdir))

    def _due_again(self, seen: Following, now: float) -> bool:
        first = self.struck[0]
        if self._loss.again is Again.STARTING:
            return seen.step < 0
        if self._loss.again is Again.SAME_STEP:
            return seen.step >= first.step
        saved = self._complete(seen, now)
        return (
            self._loss.again is Again.SAVED and saved is not None and saved.began > first.at and seen.step > saved.step
        )

    def _complete(self, seen: Following, now: float) -> Save | None:
        """Return the newest finished save that did not take less time than a save takes."""
        least = 0.9 * self._limits.saving_seconds
        done = [save for save in seen.saves.history if save.done and now - save.began >= least]
        return done[-1] if done else None

    def _due(self, seen: Following, now: float) -> bool:
        loss = self._loss
        if loss.what is What.DISK_FULL:
            return seen.step >= loss.step
        if loss.when is When.AT_STEP:
            return seen.step >= loss.step and (self._has_saved(seen) or loss.step < self._limits.first_save)
        if loss.when is When.SAVED:
            saved = self._complete(seen, now)
            return saved is not None and saved.step > loss.step
        current = self._saving(seen)
        return current is not None and now - current.began >= SHARE[loss.when] * self._takes(seen) / (1 + self._missed)

    def _has_saved(self, seen: Following) -> bool:
        """Return whether a save is there to resume from: an asynchronous one may take many steps on a busy machine."""
        first = self._limits.first_save
        return seen.saved >= first or any(save.done and save.step >= first for save in seen.saves.history)

    def _takes(self, seen: Following) -> float:
        """Return the seconds of a save: as in the unbroken run, or as in this run if one was quicker and was missed."""
        done = [save.seconds for save in seen.saves.history if save.done and save.named]
        return min([self._limits.saving_seconds, *done])

    def _strike(self, attempt: int, hosts: Hosts, seen: Following, now: float) -> None:
        loss, victims = self._loss, [hosts[host] for host in self._loss.hosts]
        pids = _pids(hosts, self._loss)
        if loss.what is What.DISK_FULL:
            # A limit on file size stops writes where a full disk would, and affects no other program.
            most = self._limits.bytes_most
            for pid in processes.family(pid for host in hosts.values() for pid in host.pids):
                with suppress(OSError, ValueError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (most, most))
        elif loss.what is What.KILL:
            processes.signal_all(pids, signal.SIGKILL)
        elif loss.what is What.HANG:
            processes.signal_all(pids, signal.SIGSTOP)
        else:
            grace = self._limits.grace
            self._leaving = [(pid, now + grace) for host in victims for pid in host.pids]
            if loss.what is What.TERM:
                self._site.leave(victims)
            else:
                self._site.preempt(victims, grace)
            processes.signal_all(pids, signal.SIGCONT)
        last, current = self._complete(seen, now), seen.saves.current
        if loss.damage is not Damage.NONE:
            # Damage it at once: a cluster starts the next attempt by itself.
            last = self._newest_after(pids, seen)
            self.damaged = self._damage(last, seen.saves.consists)
        self.struck.append(
            Struck(
                attempt,
                seen.step,
                now,
                last.step if last else -1,
                current.step if current else -1,
                last.named if last else False,
            )
        )

    def _newest_after(self, pids: Sequence[int], seen: Following) -> Save | None:
        """Return the newest save after all these processes died: one more may have finished since the last look."""
        due = self._clock.monotonic() + DEAD_SECONDS
        while any(map(processes.lives, pids)) and self._clock.monotonic() < due:
            self._clock.sleep(0.002)
        for _ in range(2):
            seen.poll((), self._clock.now())
            self._clock.sleep(2 * QUIET)
        seen.poll((), self._clock.now())
        return next((save for save in reversed(seen.saves.history) if save.done), None)

    def _end_grace(self, hosts: Hosts, now: float) -> None:
        due = [pid for pid, at in self._leaving if now >= at]
        self._leaving = [(pid, at) for pid, at in self._leaving if now < at]
        running = {pid for host in hosts.values() for pid in host.pids}
        processes.signal_all(processes.family(pid for pid in due if pid in running), signal.SIGKILL)


def _pids(hosts: Hosts, loss: Loss) -> list[int]:
    return processes.family(pid for host in loss.hosts for pid in hosts[host].pids)
