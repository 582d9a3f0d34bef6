"""Waiting for something to become true, with an end to it."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

T = TypeVar("T")


def until(look: Callable[[], T], what: str = "", seconds: float = 20.0) -> T:
    """The first true thing that `look` gives."""
    due = time.monotonic() + seconds
    while not (found := look()):
        assert time.monotonic() < due, f"waited {seconds} s for {what or look}"
        time.sleep(0.01)
    return found


def alive(pid: int) -> bool:
    """Whether a process runs; one that ended and waits for its parent to notice does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
