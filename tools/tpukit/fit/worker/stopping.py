"""The end of a carried run: the program asked for a value that only a TPU could give."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

CALLS = 48
"""Calls of one compiled function after which the run ends, for programs that never ask for a value."""


class Stop(BaseException):
    """Ends the program. Programs that catch Exception do not catch it."""


_stopped = threading.Event()


def stop(reason: str) -> Stop:
    """Return what ends this thread, and make the main thread end at its next operation."""
    _stopped.set()
    return Stop(reason)


def check() -> None:
    """Raise in the main thread after another thread has asked for a value."""
    if _stopped.is_set() and threading.current_thread() is threading.main_thread():
        raise Stop("a value")


def place(roots: tuple[str, ...], frames: traceback.StackSummary | None = None) -> str:
    """Return FILE:LINE of the innermost frame below one of `roots`; empty where there is none."""
    for frame in reversed(frames if frames is not None else traceback.extract_stack()):
        if any(Path(frame.filename).is_relative_to(root) for root in roots):
            return f"{frame.filename}:{frame.lineno}"
    return ""
