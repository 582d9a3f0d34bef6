"""Make the kernel pass some system calls of a process to another one: those that GCS FUSE answers differently.

https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html. Uses the standard library only. Linux on x86-64 and arm64;
as a program, it reports whether it works here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import struct
import sys

# Numbers by name: https://github.com/torvalds/linux/blob/master/arch/x86/entry/syscalls/syscall_64.tbl and
# https://github.com/torvalds/linux/blob/master/include/uapi/asm-generic/unistd.h.
_X86 = {"rename": 82, "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265, "mknod": 133, "mknodat": 259}
_X86 |= {"chmod": 90, "fchmod": 91, "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260}
_X86 |= {"fchmodat2": 452, "flock": 73, "fcntl": 72, "open": 2, "creat": 85, "openat": 257, "mkdir": 83, "mkdirat": 258}
_X86 |= {"symlink": 88, "symlinkat": 266, "fallocate": 285, "setxattr": 188, "lsetxattr": 189, "fsetxattr": 190}
_ARM = {"renameat": 38, "renameat2": 276, "linkat": 37, "mknodat": 33, "fchmod": 52, "fchmodat": 53, "fchownat": 54}
_ARM |= {"fchown": 55, "fchmodat2": 452, "flock": 32, "fcntl": 25, "openat": 56, "mkdirat": 34, "symlinkat": 36}
_ARM |= {"fallocate": 47, "setxattr": 5, "lsetxattr": 6, "fsetxattr": 7}
_MACHINES = {"x86_64": (0xC000003E, 317, _X86), "aarch64": (0xC00000B7, 277, _ARM)}
_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW and those of open files
CREATES, WRITES = os.O_CREAT, os.O_WRONLY | os.O_RDWR | os.O_TRUNC
UNNAMED = os.O_TMPFILE & ~os.O_DIRECTORY
_LOAD, _IF_EQUAL, _IF_ANY, _RETURN = 0x20, 0x15, 0x45, 0x06
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
_NEW_LISTENER = 8
_PIDFD_OPEN, _PIDFD_GETFD = 434, 438

_libc = ctypes.CDLL(None, use_errno=True)


def names() -> dict[int, str]:
    """Return the names of the filtered calls, by number."""
    return {number: name for name, number in _MACHINES[os.uname().machine][2].items()}


def install(*, denied: bool = False) -> int:
    """Filter this process and all that it starts from now on, and return the listener's file, closed by exec.

    `denied`: some buckets are read-only, so files opened for writing are filtered too.
    """
    if os.uname().machine not in _MACHINES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    arch, seccomp, numbers = _MACHINES[os.uname().machine]
    code = _program(arch, numbers, CREATES | UNNAMED | (WRITES if denied else 0))
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(held))
    return call(seccomp, 1, _NEW_LISTENER, program)


def _program(arch: int, numbers: dict[str, int], opening: int) -> bytes:
    """Return the filter program. `opening`: flags with which opening a file is filtered."""
    by_argument = [
        ("fcntl", 1, _IF_EQUAL, _LOCKS),
        ("open", 1, _IF_ANY, (opening,)),
        ("openat", 2, _IF_ANY, (opening,)),
    ]
    looked_into = {name for name, *_ in by_argument}
    asked = sorted(number for name, number in numbers.items() if name not in looked_into)
    # Jumps go to the last line, which asks, to the one before it, or over the given number of lines.
    lines: list[tuple[int, int | str, int, int]] = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _ALLOW)]
    lines += [(_LOAD, 0, 0, 0), *((_IF_EQUAL, "ask", 0, number) for number in asked)]
    for name, argument, test, values in by_argument:
        if name in numbers:
            lines += [(_IF_EQUAL, 0, 2 + len(values), numbers[name]), (_LOAD, 0, 0, 16 + 8 * argument)]
            lines += [(test, "ask", 0, value) for value in values]
            lines += [(_RETURN, 0, 0, _ALLOW)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
    last = len(lines) - 1
    jumps = [last - index - 1 if line[1] == "ask" else line[1] for index, line in enumerate(lines)]
    return b"".join(struct.pack("HBBI", line[0], jump, *line[2:]) for line, jump in zip(lines, jumps, strict=True))


def listener(pid: int, number: int) -> int:
    """Return the file that `install` returned in another process."""
    process = call(_PIDFD_OPEN, pid, 0)
    try:
        return call(_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)


def call(number: int, *arguments: int | bytes) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def probe() -> int:
    """Return 0 if filters work here."""
    _libc.prctl(38, 1, 0, 0, 0)  # no new privileges: then any user may install it
    try:
        os.close(listener(os.getpid(), install()))
    except OSError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(probe())
