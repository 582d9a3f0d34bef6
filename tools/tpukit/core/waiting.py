"""Waits of commands: reported after seconds, and ended by a limit."""

from __future__ import annotations

from collections.abc import Callable

from tpukit.core.clock import Clock
from tpukit.core.errors import NotYet

TELL_SECONDS = 3.0
"""Longest silence of a command that waits."""


def silent(text: str) -> None:
    """Report nothing."""


def until(
    clock: Clock,
    seconds: float,
    done: Callable[[], bool],
    what: str,
    *,
    hint: str,
    pause: float,
    say: Callable[[str], None] = silent,
) -> None:
    """Wait until `done`. Report the wait once after a few seconds, and raise NotYet after the limit."""
    began, told = clock.monotonic(), False
    while not done():
        waited = clock.monotonic() - began
        if waited >= seconds:
            raise NotYet(f"still waiting for {what} after {seconds:.0f} s", hint=hint)
        if waited >= TELL_SECONDS and not told:
            say(f"waiting for {what}, for up to {seconds:.0f} s")
            told = True
        clock.sleep(pause)
