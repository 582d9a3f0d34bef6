"""Errors by name: failures in a row, time of the first, time of the next try, and what was reported."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass

from tpukit.core.clock import Clock
from tpukit.core.errors import NotYet, TpukitError
from tpukit.kernel import backoff

log = logging.getLogger("tpukit.kernel")


@dataclass(slots=True)
class _Failing:
    since: float  # on the monotonic clock, as `until`
    failures: int = 0
    until: float = 0.0
    text: str = ""
    complained: str = ""
    recorded: bool = False


class RetryState:
    """Errors of one kernel. Thread-safe; another driver does not need them to continue."""

    def __init__(self, clock: Clock, complain: Callable[[str, str], None], seed: int | None = None) -> None:
        self._clock, self._complain = clock, complain
        self._random = random.Random(seed)  # noqa: S311  # spreads retries, guards nothing
        self._lock = threading.Lock()
        self._known: dict[str, _Failing] = {}
        self._revisions: dict[str, int] = {}  # revisions of the records at their last failure

    def due(self, name: str, revision: int | None = None) -> bool:
        """Report whether it may be tried now: its wait is over, or its record changed since the last try."""
        with self._lock:
            failing = self._known.get(name)
        if failing is None or self._clock.monotonic() >= failing.until:
            return True
        return revision is not None and self.changed(name, revision)

    def changed(self, name: str, revision: int) -> bool:
        """Report whether another process wrote the record since the last failure."""
        with self._lock:
            return self._revisions.get(name, revision) != revision

    def seen(self, name: str, revision: int) -> None:
        """Note the revision that the last failure left behind."""
        with self._lock:
            self._revisions[name] = revision

    def add(self, name: str, error: Exception) -> None:
        """Count a failure, and report it once for each text."""
        now = self._clock.monotonic()
        with self._lock:
            failing = self._known.setdefault(name, _Failing(now))
            failing.failures += 1
            wait = backoff.after(error, failing.failures, self._random.random)
            failing.until = now + wait.seconds
            failing.text = str(error) if isinstance(error, TpukitError) else f"{type(error).__name__}: {error}"
            failing.recorded = wait.recorded
            new = bool(wait.seconds) and failing.complained != failing.text and not isinstance(error, NotYet)
            if new:
                failing.complained = failing.text
        if new:
            self._complain(name, failing.text)
        if not isinstance(error, TpukitError):
            log.error("%s: %s", name, error, exc_info=error)

    def lasted(self, name: str) -> float:
        """Return for how many seconds it has failed without a success."""
        with self._lock:
            failing = self._known.get(name)
        return self._clock.monotonic() - failing.since if failing else 0.0

    def rest(self, name: str, seconds: float) -> None:
        """Delay the next try by `seconds`, unless the record changes."""
        now = self._clock.monotonic()
        with self._lock:
            failing = self._known.setdefault(name, _Failing(now))
            failing.until = max(failing.until, now + seconds)

    def clear(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)
            self._revisions.pop(name, None)

    def keep_only(self, names: Container[str]) -> None:
        with self._lock:
            for name in [name for name in (*self._known, *self._revisions) if name not in names]:
                self._known.pop(name, None)
                self._revisions.pop(name, None)

    def for_record(self, name: str) -> str:
        """Return the text for the record; empty while it is too early for one."""
        with self._lock:
            failing = self._known.get(name)
            return failing.text if failing and failing.recorded else ""

    def texts(self) -> Mapping[str, str]:
        with self._lock:
            return {name: failing.text for name, failing in self._known.items() if failing.text}
