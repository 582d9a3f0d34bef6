"""The right to act, checked immediately before each call that creates, deletes or signals.

A driver may be suspended between its decision and its act, and another driver may own the key by the time it resumes.
The kernel opens a fence around everything it does for one key; the adapter that sends a request calls `check` as the
last thing before it sends. Outside a fence (a command that a person typed) `check` allows everything.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")
Check = Callable[[], float]

_current: ContextVar[Check | None] = ContextVar("fence", default=None)


@contextmanager
def held(check: Check) -> Iterator[None]:
    """Run the block under `check`, which raises LeaseLost or returns the seconds for which the lease is still held."""
    token = _current.set(check)
    try:
        yield
    finally:
        _current.reset(token)


def check() -> float:
    """Return the seconds that a call may take now; infinite outside a fence.

    Raises:
        LeaseLost: Another driver owns the key, so the call must not be sent.
    """
    current = _current.get()
    return current() if current is not None else math.inf


def deadline(seconds: float) -> float:
    """Check the fence, and return `seconds` or what is left of the lease, whichever is shorter."""
    return min(seconds, check())


def carry(function: Callable[P, R]) -> Callable[P, R]:
    """Return `function` bound to the current fence, for use in another thread."""

    def carried(*args: P.args, **kwargs: P.kwargs) -> R:
        # A context can be entered by one thread at a time, and a pool runs several of these at once.
        return context.copy().run(function, *args, **kwargs)

    context = copy_context()
    return carried
