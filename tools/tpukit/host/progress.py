"""How far this host is, in a small file that whoever started it may read at any moment.

The file is replaced whole, so a reader never sees half of it. A report that cannot be written costs a warning, never
the training run.
"""

from __future__ import annotations

import json
import logging
import math
import os
import time
from collections.abc import Callable, Mapping
from pathlib import Path

_log = logging.getLogger(__name__)


class Progress:
    """The latest values, written to `path` at most every `interval` seconds; an empty path writes nothing."""

    def __init__(self, path: str, *, interval: float = 0.2, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = Path(path) if path else None
        self._interval = interval
        self._clock = clock
        self._written_at = -math.inf
        self._values: dict[str, object] = {}
        self._unwritten = False
        self._warned = False

    def update(self, values: Mapping[str, object]) -> None:
        """Keep `values` on top of those already known, and write them unless that was done a moment ago."""
        self._values.update({name: _json_safe(value) for name, value in values.items()}, time=time.time())
        self._unwritten = True
        if self._clock() - self._written_at >= self._interval:
            self.flush()

    def flush(self) -> None:
        """Write what has not been written yet."""
        if self._path is None or not self._unwritten:
            return
        self._written_at = self._clock()
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            draft.write_text(json.dumps(self._values), encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            if not self._warned:
                _log.warning("progress is not reported, training goes on: %s", error)
            self._warned = True
            return
        self._unwritten = False


def _json_safe(value: object) -> object:
    """JSON has no NaN or infinity, and a loss that became one is exactly when somebody looks."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
