"""Confinement of a queued job's code on Linux: each layer is tried, and those in effect are listed.

Use these layers, around the process, together with those of the container (no root, no privileges, read-only file
system, network policy). None of them protects against a hole in the kernel or in the TPU driver, and sockets that are
files (such as Docker's) can be reached where their file can. Only ctypes and the standard library: this runs where
nothing else of tpukit is installed.
"""

from __future__ import annotations

import ctypes
import errno
import os
import resource
import signal
import struct
import sys
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

_libc = ctypes.CDLL(None, use_errno=True)

# https://man7.org/linux/man-pages/man2/unshare.2.html
_NEWUSER, _NEWPID, _NEWNET, _NEWIPC = 0x10000000, 0x20000000, 0x40000000, 0x08000000
# https://man7.org/linux/man-pages/man2/prctl.2.html
_PDEATHSIG, _NO_NEW_PRIVS, _SUBREAPER, _SET_SECCOMP = 1, 38, 36, 22
_SOCKET = {"x86_64": (0xC000003E, 41), "aarch64": (0xC00000B7, 198)}  # name of the instruction set, number of socket(2)
_IO_URING_SETUP = 425
# https://docs.kernel.org/userspace-api/landlock.html
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_READ = 1 << 0 | 1 << 2 | 1 << 3  # execute, read file, read folder
_FILE = 1 << 0 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 15  # rights that a file can have; the others are for folders
_HANDLED = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 4: (1 << 15) - 1}
_TCP = 0b11
_SCOPES = 0b11  # abstract sockets and signals
_INSIDE = 1000  # user id that the code sees
READABLE = (
    *("/usr", "/lib", "/lib64", "/lib32", "/bin", "/sbin", "/opt", "/proc", "/sys"),
    # Not all of /etc: a worker that runs as root would expose the machine's passwords.
    *(f"/etc/{name}" for name in ("hosts", "resolv.conf", "nsswitch.conf", "passwd", "group", "ld.so.cache", "ssl")),
    *(f"/etc/{name}" for name in ("localtime", "alternatives", "pki", "ca-certificates", "mime.types")),
)
DEVICES = ("null", "zero", "full", "random", "urandom", "tty", "vfio", "accel*")
"""Devices below /dev; the last two are TPUs. Not /dev/shm, which all jobs would share."""


@dataclass(frozen=True, slots=True)
class Limits:
    memory: int  # bytes of address space per process, and of memory in total; 0: the container's limit
    processes: int  # threads count as processes
    file: int  # bytes of one file
    network: bool = False


def separate(network: bool) -> list[str]:
    """Enter new namespaces; the next child is their first process. Skip what is not permitted."""
    user, group = os.getuid(), os.getgid()
    wanted = _NEWUSER | _NEWPID | _NEWIPC | (0 if network else _NEWNET)
    if _libc.unshare(wanted) != 0:
        return []
    with suppress(OSError):
        Path("/proc/self/setgroups").write_text("deny", encoding="ascii")
    Path("/proc/self/uid_map").write_text(f"{_INSIDE} {user} 1", encoding="ascii")
    Path("/proc/self/gid_map").write_text(f"{_INSIDE} {group} 1", encoding="ascii")
    return ["user namespace", "process namespace", *([] if network else ["network namespace"])]


def adopt_orphans() -> None:
    _libc.prctl(_SUBREAPER, 1, 0, 0, 0)


def die_with_parent(parent: int) -> None:
    _libc.prctl(_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if parent and os.getppid() not in (parent, 0):  # it has already ended; 0: it is outside of our namespace
        os._exit(1)


def confine(limits: Limits, writable: Sequence[Path], readable: Iterable[Path] = ()) -> list[str]:
    """Confine this process and its children permanently."""
    layers = ["limits"]
    for name, most in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, limits.file),
        (resource.RLIMIT_AS, limits.memory or resource.RLIM_INFINITY),
        (resource.RLIMIT_NPROC, limits.processes),
        (resource.RLIMIT_NOFILE, 1024),
    ):
        with suppress(ValueError, OSError):
            resource.setrlimit(name, (most, most))
    if _libc.capset(struct.pack("=Ii", 0x20080522, 0), bytes(24)) == 0:  # version 3, no capabilities
        layers.append("no capabilities")
    if _libc.prctl(_NO_NEW_PRIVS, 1, 0, 0, 0) == 0:
        layers.append("no new privileges")
        layers += _landlock(limits.network, writable, readable)
        if not limits.network:
            layers += _no_sockets()
    return layers


def _landlock(network: bool, writable: Sequence[Path], readable: Iterable[Path]) -> list[str]:
    version = _libc.syscall(_CREATE_RULESET, None, 0, 1)
    if version < 1:
        return []
    handled = _HANDLED.get(version, (1 << 16) - 1)
    tcp = _TCP if version >= 4 and not network else 0
    attributes = struct.pack("QQQ", handled, tcp, _SCOPES if version >= 6 else 0)
    size = 8 if version < 4 else 16 if version < 6 else 24
    ruleset = _libc.syscall(_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return []
    for path in [*map(Path, READABLE), *map(Path, _interpreter()), *readable]:
        _allow(ruleset, path, _READ & handled)
    devices = [path for name in DEVICES for path in Path("/dev").glob(name)]
    for path in [*devices, *writable]:
        _allow(ruleset, path, handled)
    done = _libc.syscall(_RESTRICT_SELF, ruleset, 0) == 0
    os.close(ruleset)
    return ["files outside scratch" if version < 4 or network else "files outside scratch and TCP"] if done else []


def _no_sockets() -> list[str]:
    """Forbid all sockets except Unix domain sockets, with seccomp.

    This works in pods, too, where namespaces are not permitted and the metadata server has the worker's token.
    https://docs.kernel.org/userspace-api/seccomp_filter.html
    """
    machine = os.uname().machine
    if machine not in _SOCKET or sys.byteorder != "little":
        return []
    architecture, socket = _SOCKET[machine]
    refuse, allow, kill = 0x00050000 | errno.EACCES, 0x7FFF0000, 0x80000000
    load, equal, at_least, give = 0x20, 0x15, 0x35, 0x06
    program = [
        (load, 0, 0, 4),
        (equal, 1, 0, architecture),
        (give, 0, 0, kill),  # another instruction set has other system call numbers
        (load, 0, 0, 0),
        # Jumps count the instructions to skip: if true, and if false.
        (at_least, 5, 0, 0x40000000),  # x32 also has other numbers
        (equal, 4, 0, _IO_URING_SETUP),  # io_uring opens sockets by itself
        (equal, 0, 2, socket),
        (load, 0, 0, 16),
        (equal, 0, 1, 1),  # AF_UNIX
        (give, 0, 0, allow),
        (give, 0, 0, refuse),
    ]
    filters = ctypes.create_string_buffer(b"".join(struct.pack("=HBBI", *one) for one in program))
    header = struct.pack("HxxxxxxP", len(program), ctypes.addressof(filters))
    return ["no sockets"] if _libc.prctl(_SET_SECCOMP, 2, header, 0, 0) == 0 else []


def _interpreter() -> set[str]:
    return {sys.prefix, sys.base_prefix, sys.exec_prefix, *(entry for entry in sys.path if entry)}


def _allow(ruleset: int, path: Path, rights: int) -> None:
    try:
        descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
    except OSError:
        return
    try:
        if not path.is_dir():
            rights &= _FILE
        _libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", rights, descriptor), 0)
    finally:
        os.close(descriptor)
