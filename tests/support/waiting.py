"""Waiting for a condition, with a timeout."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tpukit.core.errors import Transient

T = TypeVar("T")
PATIENCE = 600.0
"""Timeout in seconds. It is long because a busy machine is several times slower; it costs nothing on success."""
LONGEST_PAUSE = 1.0


def until(true: Callable[[], T], what: object = "", seconds: float = PATIENCE, *, every: float = 0.01) -> T:
    """Return the first true result of a check.

    `what` describes the condition in the error message; a callable is called then, for example to read a log. Checks
    take at most a fifth of the time, because they may start programs and the awaited work needs the machine too. A
    check that raises Transient counts as false.
    """
    due = time.monotonic() + seconds
    while True:
        began = time.monotonic()
        try:
            found, silence = true(), ""
        except Transient as error:
            found, silence = None, f"; at last: {error}"
        if found:
            return found
        now = time.monotonic()
        assert now < due, f"waited {seconds} s for {what() if callable(what) else what or true}{silence}"
        time.sleep(max(every, min(4 * (now - began), LONGEST_PAUSE)))


def alive(pid: int) -> bool:
    """Return whether a process runs. A zombie does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
