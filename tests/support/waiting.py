"""Waiting for something to become true, with an end to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from tpukit.core.errors import Transient

T = TypeVar("T")
PATIENCE = 600.0
"""Seconds. On a machine that is busy with something else everything takes several times as long; where all is well
nobody waits longer for it."""
LONGEST_PAUSE = 1.0


def until(true: Callable[[], T], what: object = "", seconds: float = PATIENCE, *, every: float = 0.01) -> T:
    """The first true thing that it gives. `what` it waits for is in the message, or what there is to read when it is
    called then: a log. Looking is left to take a fifth of the time: a look may be a program that is started, and what
    is waited for needs the machine as well. A look that was not answered is one that saw nothing."""
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
    """Whether a process runs; one that ended and waits for its parent to notice does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
