"""End of a carried run: the program needs a value that only a TPU could compute."""

from __future__ import annotations

import threading
import traceback
from pathlib import Path

CALLS = 48
"""Calls of one compiled function after which the run ends, for programs that never read a value."""


class Stop(BaseException):
    """Exception that ends the program. It is not caught by `except Exception`."""


_stopped = threading.Event()


def stop(reason: str) -> Stop:
    """Return the exception that ends this thread, and make the main thread end at its next operation."""
    _stopped.set()
    return Stop(reason)


def check() -> None:
    """Raise Stop in the main thread after another thread has read a value."""
    if _stopped.is_set() and threading.current_thread() is threading.main_thread():
        raise Stop("a value")


def place(roots: tuple[str, ...], frames: traceback.StackSummary | None = None) -> str:
    """Return FILE:LINE of the innermost frame below one of `roots`, or an empty string."""
    for frame in reversed(frames if frames is not None else traceback.extract_stack()):
        if any(Path(frame.filename).is_relative_to(root) for root in roots):
            return f"{frame.filename}:{frame.lineno}"
    return ""
