"""Signals to the processes of hosts: each host is the process that the place started, and all that it started."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from tpukit.core.clock import Clock

STOP_SECONDS = 1.0
"""Seconds that processes may take to stop: one that waits for a disk stops afterwards."""
_STOPPED, _DEAD = "Tt", "ZX"


def family(pids: Iterable[int]) -> list[int]:
    """Return these processes and all their descendants."""
    found: dict[int, None] = {}
    todo = list(pids)
    while todo:
        pid = todo.pop()
        if pid not in found:
            found[pid] = None
            todo += _children(pid)
    return list(found)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, ValueError):
                found += map(int, (thread / "children").read_text(encoding="ascii").split())
    return found


def signal_all(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def stop(pids: Iterable[int], clock: Clock) -> list[int]:
    """Stop processes with their descendants, wait until they stopped, and return them."""
    stopped: set[int] = set()
    due = clock.monotonic() + STOP_SECONDS
    while fresh := set(family(pids)) - stopped:  # a process may start another one before it stops
        signal_all(fresh, signal.SIGSTOP)
        while any(state(pid) not in _STOPPED + _DEAD for pid in fresh) and clock.monotonic() < due:
            clock.sleep(0.0005)
        stopped |= fresh
    return list(stopped)


def lives(pid: int) -> bool:
    """Return whether the process can still write: `/proc` lists dead processes until they are reaped."""
    return state(pid) not in _DEAD


def state(pid: int) -> str:
    """Return the letter of the process's state; X if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except OSError:
        return "X"
