"""The process tree below a process, on Linux: list, freeze, wake and kill it as one."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_PR_SET_CHILD_SUBREAPER = 36
_ROUNDS = 500


def adopt_orphans() -> None:
    """Make orphaned descendants children of this process, regardless of their session."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def descendants(pid: int) -> list[int]:
    """Return the living processes below this one, without itself, parents first."""
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
    for file in Path(f"/proc/{pid}/task").glob("*/children"):  # each thread has its own children
        with suppress(OSError):
            pids += map(int, file.read_text(encoding="ascii").split())
    return pids


def started(pid: int) -> str:
    """Return the start time of a process, which distinguishes it from a later one with the same number.

    The text is the kernel's; it is empty for a process that has ended, even if its exit status was not collected.
    """
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
    """Stop a process and all below it, parents first so that no new ones begin."""
    stopped: set[int] = set()
    while new := [one for one in (pid, *descendants(pid)) if one not in stopped]:
        send(new, signal.SIGSTOP)
        stopped.update(new)


def wake(pid: int) -> None:
    send(reversed((pid, *descendants(pid))), signal.SIGCONT)


def kill_below(pid: int) -> None:
    """Kill all descendants, including those that begin meanwhile."""
    for _ in range(_ROUNDS):
        left = descendants(pid)
        if not left:
            return
        send(left, signal.SIGKILL)
        time.sleep(0.005)


def kill_tree(pid: int) -> None:
    """Kill a process and all below it. Stop it first, so that it starts nothing more but still adopts orphans."""
    send([pid], signal.SIGSTOP)
    kill_below(pid)
    send([pid], signal.SIGKILL)


class Children:
    """The processes that this one started itself, as opposed to adopted ones."""

    def __init__(self) -> None:
        self._own: set[int] = set()
        self._starting = 0
        self._waiting: set[asyncio.Task[None]] = set()

    async def start(self, argv: Sequence[str], env: Mapping[str, str], **streams: Any) -> asyncio.subprocess.Process:
        """Start a process in its home and its own session. It outlives its requester."""
        self._starting += 1
        try:
            child = await asyncio.create_subprocess_exec(
                *argv, env=env, cwd=env["HOME"], start_new_session=True, **streams
            )
            self._own.add(child.pid)
        finally:
            self._starting -= 1
        # Keep a reference until it ends: asyncio kills a process without one.
        waiting = asyncio.ensure_future(self._wait(child))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return child

    async def _wait(self, child: asyncio.subprocess.Process) -> None:
        await child.wait()
        self._own.discard(child.pid)

    def reap(self) -> None:
        """Reap adopted processes that ended. While a process is being started, own and adopted ones look the same."""
        for pid in _children(os.getpid()) if not self._starting else ():
            if pid not in self._own and not started(pid):
                with suppress(ChildProcessError):
                    os.waitpid(pid, os.WNOHANG)
