"""Processes of attempts as the kernel knows them: evidence that no program can remove.

A process belongs to an attempt if its environment has the mark of the attempt's folder, or if it is the shim of that
folder. A program that removes the supervisor's files changes neither. A process that clears its environment is found
through its living shim, of which it is a descendant.
"""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator

MARK = "TPUKIT_POD"
SHIM = "shim.py"
RESTORE_SECONDS = 5.0
"""Seconds that a shim may take to rewrite its files."""


def shims(jobs: str) -> dict[str, int]:
    """Return the living shims of attempts below the folder `jobs`, by the folder of the attempt."""
    found: dict[str, int] = {}
    for pid, content in _read("cmdline"):
        words = content.rstrip(b"\0").split(b"\0")
        if len(words) < 3 or os.path.basename(words[-2]) != SHIM.encode():
            continue
        folder = os.fsdecode(words[-1])
        # The process that starts a shim briefly has the same command line, but leads no session.
        if folder.startswith(jobs + os.sep) and _shares(pid, jobs) and _leads_session(pid):
            found[folder] = pid
    return found


def marked(jobs: str) -> dict[str, list[int]]:
    """Return the processes that carry the mark of an attempt below `jobs`, by the folder in that mark."""
    prefix = f"{MARK}={jobs}{os.sep}".encode()
    found: dict[str, list[int]] = {}
    for pid, content in _read("environ"):
        for word in content.split(b"\0") if prefix in content else ():
            if word.startswith(prefix) and _shares(pid, jobs):
                found.setdefault(os.fsdecode(word).partition("=")[2], []).append(pid)
                break
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal.SIGKILL)


def restore(folder: str, shim: int) -> None:
    """Have a shim rewrite the files that were removed from its folder."""
    with suppress(ProcessLookupError, PermissionError):
        os.kill(shim, signal.SIGHUP)
    due = time.monotonic() + RESTORE_SECONDS
    while (
        not os.path.exists(os.path.join(folder, "began")) and time.monotonic() < due and os.path.exists(f"/proc/{shim}")
    ):
        time.sleep(0.01)


def _read(name: str) -> Iterator[tuple[int, bytes]]:
    try:
        entries = os.listdir("/proc")
    except OSError:
        return
    for entry in entries:
        if entry.isdigit() and int(entry) != os.getpid():
            with suppress(OSError):  # it has ended, or belongs to another user
                with open(f"/proc/{entry}/{name}", "rb") as file:
                    content = file.read()
                if content:
                    yield int(entry), content


def _shares(pid: int, jobs: str) -> bool:
    """Return whether a process sees our disks: hosts that share a kernel have equal paths on different disks."""
    home = os.path.dirname(os.path.dirname(jobs))
    try:
        return os.path.samefile(f"/proc/{pid}/root{home}", home)
    except OSError:
        with suppress(OSError):
            return os.readlink(f"/proc/{pid}/ns/mnt") == os.readlink("/proc/self/ns/mnt")
        return False


def _leads_session(pid: int) -> bool:
    with suppress(OSError):
        return os.getsid(pid) == pid
    return False
