"""Progress of this host, in a small file that its starter can read at any moment, and in lines of its log.

The lines are for readers without access to the file. The file is replaced whole, so a reader never sees a partial one.
A report that cannot be written causes a warning and never stops the training run.
"""

from __future__ import annotations

import json
import logging
import math
import operator
import os
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from tpukit.host.trace import Trace

_log = logging.getLogger(__name__)

LINE = "tpukit-progress "
"""Prefix of a log line that holds the values as JSON."""
BEAT_LINES = 30.0
"""Least seconds between two lines that only say that this process lives."""


class Progress:
    """The latest values, written to `path` at most every `interval` seconds; an empty path writes nothing.

    `lines` also prints them, at most every so many seconds. `trace` receives every report immediately.
    """

    def __init__(
        self,
        path: str,
        *,
        lines: float = 0.0,
        interval: float = 0.2,
        clock: Callable[[], float] = time.monotonic,
        trace: Trace | None = None,
    ) -> None:
        self._path = Path(path) if path else None
        self._interval = interval
        self._lines = lines
        self._clock = clock
        self._trace = trace
        self._last_write = self._printed_at = -math.inf
        self._printed: dict[str, object] = {}
        self._values: dict[str, object] = {}
        self._announced: dict[str, object] = {}
        self._pending = False
        self._warned = False
        self._updated = -math.inf
        self._lock = threading.Lock()  # beats come from a thread of their own

    def update(self, values: Mapping[str, object]) -> None:
        """Merge `values` into the known ones, and write them unless `interval` has not passed yet."""
        new = {name: _json_safe(value) for name, value in values.items()} | {"time": time.time()}
        with self._lock:
            self._values.update(new)
            if self._trace:
                self._trace.write({name: _traced(values.get(name), value) for name, value in new.items()})
            self._pending = True
            now = self._updated = self._clock()
            if now - self._last_write >= self._interval:
                self._write()
            # The saved step decides how a lost attempt is judged, so report it immediately.
            if now - self._printed_at >= self._lines or self._values.get("saved") != self._printed.get("saved"):
                self._print()

    def announce(self) -> None:
        """Report that steps will follow, so that a program that hangs before its first one is noticed."""
        self._announced = {"starting": True, "time": time.time()}
        text = json.dumps(self._announced)
        if self._path is not None:
            self._replace(text)
        if self._lines:
            sys.stdout.write(f"{LINE}{text}\n")
            sys.stdout.flush()

    def beat(self, signs: Mapping[str, object], quiet: float) -> None:
        """Write signs of life beside the last values, unless something was reported within `quiet` seconds."""
        with self._lock:
            now = self._clock()
            if now - self._updated < quiet:
                return
            text = json.dumps({**(self._values or self._announced), **signs})
            if self._path is not None:
                self._replace(text)
            if self._lines and now - self._printed_at >= max(self._lines, BEAT_LINES):
                self._printed_at = now
                # Not through sys.stdout: a thread that holds its lock when Python ends makes it abort.
                with suppress(OSError, ValueError):  # a notebook's output has no file
                    os.write(sys.stdout.fileno(), f"{LINE}{text}\n".encode())

    def flush(self) -> None:
        """Write pending values."""
        with self._lock:
            self._write()
            self._print()

    def _print(self) -> None:
        if self._lines and self._values != self._printed:
            self._printed_at, self._printed = self._clock(), dict(self._values)
            sys.stdout.write(f"{LINE}{json.dumps(self._values)}\n")  # one write, because other threads print too
            sys.stdout.flush()

    def _write(self) -> None:
        if self._path is None or not self._pending:
            return
        self._last_write = self._clock()
        self._pending = not self._replace(json.dumps(self._values))

    def _replace(self, text: str) -> bool:
        """Replace the file, and return whether it holds `text` now."""
        assert self._path is not None
        draft = self._path.with_name(f"{self._path.name}.{os.getpid()}.new")
        try:
            draft.write_text(text, encoding="utf-8")
            draft.replace(self._path)
        except OSError as error:
            if not self._warned:
                _log.warning("progress cannot be reported; training continues: %s", error)
            self._warned = True
            return False
        return True


def _json_safe(value: object) -> object:
    """Return `value` as a plain number (it may be NumPy's or JAX's); None if readers of the file cannot parse it.

    JSON has no NaN or infinity, and a loss that became one must not break the file.
    """
    if value is None or isinstance(value, (bool, str)):
        return value
    try:
        count = operator.index(value)  # type: ignore[arg-type]
        return count if abs(count) < 2**63 else None
    except TypeError:
        pass
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) else None


def _traced(value: object, safe: object) -> object:
    """Return the form of `value` in the trace: NaN and infinity as words, a mapping of digests unchanged."""
    if isinstance(value, Mapping):
        return {str(name): str(digest) for name, digest in value.items()}
    if value is None or safe is not None:
        return safe
    try:
        return str(float(value))  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
