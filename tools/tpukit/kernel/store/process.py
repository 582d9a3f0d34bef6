"""Identify this process, and check whether another process of this machine is dead.

Process ids are reused, so a process is its id and its start time. Containers on one machine have their own process ids,
so each PID namespace counts as a machine. Cloned machines may share machine id and host name, so a machine lasts from
one boot to the next: a process of an earlier boot is not known to be dead, and its lease lapses.
"""

from __future__ import annotations

import getpass
import os
import secrets
import socket
import subprocess
from functools import cache
from pathlib import Path

from tpukit.kernel.store import Holder

_PROC = Path("/proc")
_MACHINE_ID = Path("/etc/machine-id")
_ENDED = "ZX"  # dead, but its parent has not collected its exit code yet


def this_process() -> Holder:
    """Return this process as a holder, the same for every call."""
    return _holder(os.getpid())


@cache
def _holder(pid: int) -> Holder:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        user = str(os.getuid())
    name = f"{user}@{socket.gethostname()}/{pid}/{secrets.token_hex(4)}"
    return Holder(name, _machine(), pid, _started(pid), user)


def is_dead(holder: Holder) -> bool:
    """Report whether the holder is known to be dead: never on another machine."""
    if not (holder.machine and holder.pid and holder.started) or holder.machine != _machine():
        return False
    try:
        os.kill(holder.pid, 0)
    except ProcessLookupError:
        return True
    except OSError:
        pass  # it exists, and belongs to another user
    started = _started(holder.pid)
    # An empty result means that this user may not see it (hidepid); then the lease has to lapse.
    return bool(started) and started != holder.started


@cache
def _machine() -> str:
    """Return an id of this machine and boot; empty if boots look alike, so that no process counts as dead."""
    host = socket.gethostname()
    if not _PROC.joinpath("self").exists():
        boot = _output("sysctl", "-n", "kern.bootsessionuuid")
        return f"{boot}/{host}/{_output('sysctl', '-n', 'kern.uuid')}" if boot else ""
    if not (boot := _boot()):
        return ""
    try:
        namespace = str((_PROC / "self" / "ns" / "pid").readlink())
    except OSError:
        namespace = ""
    return f"{boot}/{_text(_MACHINE_ID)}/{host}/{namespace}"


def _started(pid: int) -> str:
    """Return the start time of a process; "ended" if it ended; empty if it is hidden."""
    if not _PROC.joinpath("self").exists():
        return _output("ps", "-o", "lstart=", "-p", str(pid))
    # The program name comes second, in brackets, and may contain anything.
    fields = _text(_PROC / str(pid) / "stat").rpartition(")")[2].split()
    if len(fields) < 20:
        return ""
    return "ended" if fields[0] in _ENDED else f"{_boot()}/{fields[19]}"


@cache
def _boot() -> str:
    return _text(_PROC / "sys" / "kernel" / "random" / "boot_id")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _output(*argv: str) -> str:
    try:
        return subprocess.run(argv, capture_output=True, text=True, timeout=5, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""
