"""What went wrong of late, by name: how often in a row, when it is tried again, and what was said of it."""

from __future__ import annotations

import logging
import random
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tpukit.clock import Clock
from tpukit.control import backoff
from tpukit.errors import NotYet, TpukitError

log = logging.getLogger("tpukit.control")


@dataclass(slots=True)
class _Trouble:
    failures: int = 0
    until: float = 0.0  # on the monotonic clock
    text: str = ""
    complained: str = ""
    recorded: bool = False


class Troubles:
    """Of one kernel, safe from any thread. Nothing of it is needed to go on elsewhere."""

    def __init__(self, clock: Clock, complain: Callable[[str, str], None], seed: int | None = None) -> None:
        self._clock, self._complain = clock, complain
        self._random = random.Random(seed)  # noqa: S311  # spreads retries, guards nothing
        self._lock = threading.Lock()
        self._known: dict[str, _Trouble] = {}

    def due(self, name: str) -> bool:
        """Whether it may be tried now."""
        with self._lock:
            trouble = self._known.get(name)
        return trouble is None or self._clock.monotonic() >= trouble.until

    def add(self, name: str, error: Exception) -> None:
        """Somebody is told of it, once for each text."""
        with self._lock:
            trouble = self._known.setdefault(name, _Trouble())
            trouble.failures += 1
            wait = backoff.after(error, trouble.failures, self._random.random)
            trouble.until = self._clock.monotonic() + wait.seconds
            trouble.text = str(error) if isinstance(error, TpukitError) else f"{type(error).__name__}: {error}"
            trouble.recorded = wait.recorded
            new = bool(wait.seconds) and trouble.complained != trouble.text and not isinstance(error, NotYet)
            if new:
                trouble.complained = trouble.text
        if new:
            self._complain(name, trouble.text)
        if not isinstance(error, TpukitError):
            log.error("%s: %s", name, error, exc_info=error)

    def clear(self, name: str) -> None:
        with self._lock:
            self._known.pop(name, None)

    def for_record(self, name: str) -> str:
        """What the record should say of it; empty while it is not worth a word there."""
        with self._lock:
            trouble = self._known.get(name)
            return trouble.text if trouble and trouble.recorded else ""

    def texts(self) -> Mapping[str, str]:
        with self._lock:
            return {name: trouble.text for name, trouble in self._known.items()}
