"""The tree of processes below one, on Linux: list, freeze, wake and kill it as one."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 500


def adopt_orphans() -> None:
    """Descendants whose parent is gone become children of this process, whatever session they are in."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Living processes below this one, itself left out, parents first."""
    pids: list[int] = []
    todo = [pid]
    while todo:
        parent = todo.pop(0)
        below = [child for child in _children(parent) if started(child)]
        pids += below
        todo += below
    return pids


def _children(pid: int) -> list[int]:
    pids: list[int] = []
    for file in Path(f"/proc/{pid}/task").glob("*/children"):  # each thread has its own
        with suppress(OSError):
            pids += map(int, file.read_text(encoding="ascii").split())
    return pids


def started(pid: int) -> str:
    """When a process began, in the kernel's words, which tells it from a later one of the same number; "" for one that
    is gone or only waits to be asked how it ended."""
    try:
        words = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return ""
    return "" if words[0] in "ZX" else words[19]


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, number)


def freeze(pid: int) -> None:
    """Stops a process and all below it, parents first so that nothing new begins."""
    stopped: set[int] = set()
    while new := [one for one in (pid, *descendants(pid)) if one not in stopped]:
        send(new, signal.SIGSTOP)
        stopped.update(new)


def wake(pid: int) -> None:
    send(reversed((pid, *descendants(pid))), signal.SIGCONT)


def kill_below(pid: int) -> None:
    """Kills all descendants, those too that begin meanwhile."""
    for _ in range(_ROUNDS):
        left = descendants(pid)
        if not left:
            return
        send(left, signal.SIGKILL)
        time.sleep(0.005)


def kill_tree(pid: int) -> None:
    """Kills a process and all below it. It is stopped first, so that it starts nothing more and adopts to the end."""
    send([pid], signal.SIGSTOP)
    kill_below(pid)
    send([pid], signal.SIGKILL)


def reap(besides: set[int]) -> None:
    """Takes note of adopted processes that ended. `besides` are children that somebody else waits for."""
    for pid in _children(os.getpid()):
        if pid not in besides and not started(pid):
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
