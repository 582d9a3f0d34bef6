"""Progress of the hosts of one cluster, read from their logs by polling.

Each read is evidence with a time: what the host last reported, and when it was last readable. The next read makes up
for a failed read, a rotated log or a lost connection, so that none of these looks like a hang.
"""

from __future__ import annotations

import dataclasses
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from tpukit.core import retry
from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError
from tpukit.places import log_progress, progress, trainer_lines
from tpukit.places.gke import log_lines
from tpukit.places.gke.log_cache import LogCache
from tpukit.places.gke.log_lines import Position
from tpukit.places.gke.pod_log import ANSWER_SECONDS, PodLog, Target
from tpukit.places.log_progress import Pace
from tpukit.places.progress import Progress
from tpukit.places.trainer_lines import Mention, Reader

REQUESTS_PER_SECOND = 20.0
SHORTEST_INTERVAL, LONGEST_PAUSE = 1.0, 60.0
TAIL_LINES, LINE_CHARACTERS = 400, 2000
SETTLE_SECONDS = 5.0
FIRST_SECONDS = 1.5
FORGET_SECONDS = 300.0
"""Time to remember a job that no observation names, because it cannot be driven for a moment."""


@dataclass(slots=True)
class _Host:
    """The state of reading one host."""

    log: PodLog
    due: float
    reader: Reader
    failures: int = 0
    progress: Progress = field(default_factory=Progress)
    reports: bool = False  # it reports its progress itself, so its other lines are not parsed
    lines: Mention = field(default_factory=Mention)  # progress parsed from lines until then
    pace: Pace = field(default_factory=Pace)
    heard: float = 0.0  # awake seconds at the last successful read; 0: none so far
    changed: float = 0.0  # the same at the last one that had news
    tail: deque[str] = field(default_factory=lambda: deque(maxlen=TAIL_LINES))
    busy: threading.Lock = field(default_factory=threading.Lock)


class PodLogs:
    """A thread-safe reader of pod logs. With `workers` = 0, only `poll` reads, in the calling thread."""

    def __init__(self, clock: Clock, workers: int = 4) -> None:
        self._clock, self._workers = clock, workers
        self._hosts: dict[tuple[str, str], _Host] = {}  # by attempt and host
        self._named: dict[str, float] = {}  # when each attempt was last named
        self._lock = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._slot = 0.0
        self._closed = False

    def follow(self, attempts: Mapping[str, Sequence[Target]]) -> None:
        """Follow these targets from now on, by attempt. An attempt that is not named for a while is forgotten.

        Hosts of a named attempt that are not among its targets are no longer read, and their progress is kept.
        """
        now = self._clock.monotonic()
        with self._lock:
            self._named |= dict.fromkeys(attempts, now)
            self._named = {name: at for name, at in self._named.items() if now - at < FORGET_SECONDS}
            self._hosts = {key: host for key, host in self._hosts.items() if key[0] in self._named}
            wanted = {(attempt, one.host): one for attempt, targets in attempts.items() for one in targets}
            for key, host in self._hosts.items():
                if key[0] in attempts and key not in wanted:
                    host.due = float("inf")
            for key, target in wanted.items():
                known = self._hosts.get(key)
                if known is None or known.log.target.uid != target.uid:
                    self._hosts[key] = self._new(target, now)
                elif known.due == float("inf"):
                    known.due = now
            self._lock.notify_all()
        if wanted and self._workers and not self._threads:
            self._start()
            self._wait_for_first([self._hosts[key] for key in wanted if key in self._hosts])

    def progress(self, attempt: str) -> dict[str, tuple[Progress, float]]:
        """Return progress by host, with the monotonic time at which it was last readable."""
        with self._lock:
            return {name: (one.progress, one.heard) for (of, name), one in self._hosts.items() if of == attempt}

    def idle(self, attempt: str) -> float:
        """Return the seconds between the last news and the last read, of the host that moved last."""
        with self._lock:
            read = [one for (of, _), one in self._hosts.items() if of == attempt]
            hosts = [one for one in read if one.progress.step is not None or one.progress.early]
            return min((one.heard - one.changed for one in hosts), default=0.0)

    def tails(self, attempt: str) -> dict[str, list[str]]:
        """Return the last lines of each host."""
        with self._lock:
            return {name: list(one.tail) for (of, name), one in self._hosts.items() if of == attempt and one.tail}

    def settle(self, attempt: str, targets: Iterable[Target]) -> None:
        """Read the last lines of ended pods now, and skip what cannot be read soon."""
        until = self._clock.monotonic() + SETTLE_SECONDS
        for target in targets:
            if self._clock.monotonic() >= until:
                return
            with self._lock:
                host = self._hosts.get((attempt, target.host))
                if host is None or host.log.target.uid != target.uid:
                    host = self._hosts[attempt, target.host] = self._new(target, float("inf"))
            if host.busy.acquire(timeout=SETTLE_SECONDS):
                try:
                    while self._read(host, SETTLE_SECONDS) and self._clock.monotonic() < until:
                        pass
                finally:
                    host.busy.release()

    def poll(self) -> None:
        """Read all hosts that are due."""
        while (host := self._take()) is not None:
            self._turn(host)

    def close(self) -> None:
        with self._lock:
            self._closed = True
            self._hosts = {}
            self._lock.notify_all()

    def _new(self, target: Target, due: float) -> _Host:
        """Return a host that continues after what this machine has read of it before."""
        if target.cache is None:
            return _Host(PodLog(target), due, Reader(target.pattern), pace=Pace(whole=True))
        cache = LogCache(target.cache)
        position = cache.position()
        pace = Pace(whole=position == Position())  # the cache only returns the last lines read before
        host = _Host(PodLog(target, position), due, Reader(target.pattern), pace=pace)
        self._note(host, cache.tail())
        return host

    def _wait_for_first(self, hosts: Sequence[_Host]) -> None:
        """Wait for first results, for one-time readers such as `tpu job show`."""
        with self._lock:
            self._lock.wait_for(lambda: all(one.heard or one.failures for one in hosts), FIRST_SECONDS)

    def _start(self) -> None:
        for number in range(self._workers):
            thread = threading.Thread(target=self._work, name=f"logs {number}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def _work(self) -> None:
        while not self._closed:
            host = self._take()
            if host is None:
                with self._lock:
                    if not self._closed:
                        self._lock.wait(0.2)
            else:
                self._turn(host)

    def _take(self) -> _Host | None:
        """Return a host that is due, with its lock held, and block other requests for a fraction of a second."""
        now = self._clock.monotonic()
        with self._lock:
            if self._closed or (self._workers and now < self._slot):
                return None
            due = [one for one in self._hosts.values() if one.due <= now]
            for host in sorted(due, key=lambda one: one.due):
                if host.busy.acquire(blocking=False):
                    self._slot = now + 1 / REQUESTS_PER_SECOND
                    host.due = now + self._interval()
                    return host
        return None

    def _turn(self, host: _Host) -> None:
        try:
            self._read(host)
        finally:
            host.busy.release()
            with self._lock:
                self._lock.notify_all()

    def _read(self, host: _Host, seconds: float = ANSWER_SECONDS) -> bool:
        """Read new lines, and return whether there may be more at once."""
        before = host.log.position
        try:
            lines, more = host.log.read(seconds)
        except TpukitError:
            host.failures += 1
            if host.due != float("inf"):
                host.due = self._clock.monotonic() + retry.growing(host.failures, self._interval() * 2, LONGEST_PAUSE)
            return False
        host.failures = 0
        self._note(host, lines)
        if host.log.target.cache:
            LogCache(host.log.target.cache).append(lines, before)
        host.heard = self._clock.monotonic()
        if host.lines.step is not None and not host.reports:
            host.pace.note(host.lines.step, host.heard)
            host.progress = dataclasses.replace(host.progress, pace=host.pace.longest, early=host.pace.early)
        if more and host.due != float("inf"):
            host.due = host.heard
        return more and bool(lines)

    def _note(self, host: _Host, lines: Sequence[str]) -> None:
        for line in lines:
            text = log_lines.text(line)
            if text.startswith(log_lines.PROGRESS):
                said = progress.parse(text[len(log_lines.PROGRESS) :], self._clock.now())
                if said.early and host.progress.step is not None:
                    continue
                host.reports = host.reports or (said != Progress() and not said.early)
            else:
                host.tail.append(text[:LINE_CHARACTERS])
                mention = None if host.reports else host.reader.read(text)
                if mention is None:
                    continue
                host.pace.saw(mention.step)
                host.lines = trainer_lines.merged(host.lines, mention)
                said = log_progress.progress(host.lines, self._clock.now(), host.pace)
                if said.step is None:
                    said = dataclasses.replace(said, early=host.progress.early)
            if said == Progress():
                continue
            if (said.step, said.saved) != (host.progress.step, host.progress.saved) or not host.changed:
                host.changed = self._clock.monotonic()
            host.progress = said

    def _interval(self) -> float:
        followed = sum(1 for one in self._hosts.values() if one.due != float("inf"))
        return max(SHORTEST_INTERVAL, followed / REQUESTS_PER_SECOND)
