"""Drop privileges of a process and all that it starts: capabilities, and gaining new ones from programs.

Runs between fork and exec, with the standard library only. Linux only.
"""

from __future__ import annotations

import ctypes
import os
import resource
import struct
from contextlib import suppress

# https://man7.org/linux/man-pages/man2/prctl.2.html
PR_CAPBSET_READ, PR_CAPBSET_DROP, PR_SET_NO_NEW_PRIVS, PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL = 23, 24, 38, 47, 4
_VERSION = 0x20080522  # https://man7.org/linux/man-pages/man2/capget.2.html: sets of 64 bits
CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)
"""Capabilities by number: https://github.com/torvalds/linux/blob/master/include/uapi/linux/capability.h."""

LOCKED_BYTES = 8 << 20
"""Locked memory of a container that does not raise its limit: the kernel's default since Linux 5.16."""

_libc = ctypes.CDLL(None, use_errno=True)


def confine(capabilities: list[str] | None, *, no_new_privileges: bool) -> None:
    """Keep these capabilities at most (None: all), and gain none by programs that have some."""
    if capabilities is not None:
        _keep(sum(1 << CAPABILITIES.index(name) for name in capabilities))
    if no_new_privileges and _libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        raise _error("no new privileges")


def limit_locked_memory(capabilities: list[str] | None) -> None:
    """Set the limit of locked memory to the node's own. A process with SYS_RESOURCE (None: all) may raise it again.

    Call before the process enters its own namespaces, where it cannot raise the limit.
    """
    if capabilities is not None and "SYS_RESOURCE" not in capabilities:
        hard = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
        most = LOCKED_BYTES if hard == resource.RLIM_INFINITY else min(hard, LOCKED_BYTES)
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))
        return
    with suppress(OSError, ValueError):  # an unprivileged sandbox cannot give more than it has
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (LOCKED_BYTES, resource.RLIM_INFINITY))


def _keep(wanted: int) -> None:
    head = struct.pack("=Ii", _VERSION, 0)
    held = ctypes.create_string_buffer(24)
    if _libc.capget(head, held):
        raise _error("capabilities")
    effective, permitted, _, _, permitted_high, _ = struct.unpack("=6I", held.raw)
    may_drop = effective >> CAPABILITIES.index("SETPCAP") & 1  # without it, there are none that a bound could remove
    number = 0
    while may_drop and _libc.prctl(PR_CAPBSET_READ, number, 0, 0, 0) >= 0:  # includes those newer than the list
        if not wanted >> number & 1 and _libc.prctl(PR_CAPBSET_DROP, number, 0, 0, 0):
            raise _error(f"capability {number}")
        number += 1
    _libc.prctl(PR_CAP_AMBIENT, PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0)
    low, high = permitted & wanted & 0xFFFFFFFF, permitted_high & wanted >> 32
    if _libc.capset(head, struct.pack("=6I", low, low, 0, high, high, 0)):
        raise _error("capabilities")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)
