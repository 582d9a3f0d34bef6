"""Inject a loss into a run at the planned moment."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from tpukit.core.clock import Clock
from tpukit.drill.following import Following
from tpukit.drill.losses import Again, Damage, Loss, Struck, What, When
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

    `saving_seconds` is the length of a save, and `bytes_most` the file size at which a full disk cuts writes.
    """

    def __init__(
        self,
        loss: Loss,
        site: Site,
        clock: Clock,
        workdir: Path,
        grace: float,
        saving_seconds: float,
        bytes_most: int,
    ) -> None:
        self._loss, self._site, self._clock, self._workdir = loss, site, clock, workdir
        self._grace, self._saving, self._bytes_most = grace, saving_seconds, bytes_most
        self._leaving: list[tuple[int, float]] = []
        self.struck: list[Struck] = []
        self.damaged = ""  # the damaged file

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
        if due and all(host in hosts for host in loss.hosts):
            self._strike(attempt, hosts, seen, now)

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
        done = [save for save in seen.saves.history if save.done and now - save.began >= 0.9 * self._saving]
        return done[-1] if done else None

    def _due(self, seen: Following, now: float) -> bool:
        loss, saves = self._loss, seen.saves
        if loss.what is What.DISK_FULL or loss.when is When.AT_STEP:
            return seen.step >= loss.step
        if loss.when is When.SAVED:
            saved = self._complete(seen, now)
            return saved is not None and saved.step > loss.step and saves.current is None
        current = saves.current
        if current is None or current.step <= loss.step or not saves.consists.has_data(current.paths, current.step):
            return False
        return now - current.began >= SHARE[loss.when] * self._takes(seen)

    def _takes(self, seen: Following) -> float:
        """Return the seconds of a save: as in the unbroken run, or as in this run if one was quicker and was missed."""
        return min([self._saving, *(save.seconds for save in seen.saves.history if save.done and save.named)])

    def _strike(self, attempt: int, hosts: Hosts, seen: Following, now: float) -> None:
        loss, victims = self._loss, [hosts[host] for host in self._loss.hosts]
        pids = [pid for host in victims for pid in host.pids]
        if loss.what is What.DISK_FULL:
            # A limit on file size stops writes where a full disk would, and affects no other program.
            for pid in (pid for host in hosts.values() for pid in host.pids):
                with suppress(OSError, ValueError):
                    resource.prlimit(pid, resource.RLIMIT_FSIZE, (self._bytes_most, self._bytes_most))
        elif loss.what is What.KILL:
            signal_all(pids, signal.SIGKILL)
        elif loss.what is What.HANG:
            signal_all(pids, signal.SIGSTOP)
        else:
            self._leaving = [(pid, now + self._grace) for pid in pids]
            if loss.what is What.TERM:
                self._site.leave(victims)
            else:
                self._site.preempt(victims, self._grace)
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
        while any(map(_lives, pids)) and self._clock.monotonic() < due:
            self._clock.sleep(0.002)
        for _ in range(2):
            seen.poll((), self._clock.now())
            self._clock.sleep(2 * QUIET)
        seen.poll((), self._clock.now())
        return next((save for save in reversed(seen.saves.history) if save.done), None)

    def _end_grace(self, hosts: Hosts, now: float) -> None:
        due: Sequence[int] = [pid for pid, at in self._leaving if now >= at]
        self._leaving = [(pid, at) for pid, at in self._leaving if now < at]
        running = {pid for host in hosts.values() for pid in host.pids}
        signal_all([pid for pid in due if pid in running], signal.SIGKILL)


def signal_all(pids: Sequence[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def _lives(pid: int) -> bool:
    """Return whether the process can still write: `/proc` lists dead processes until they are reaped."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] not in ("Z", "X")
    except OSError:
        return False
