"""Answers some system calls of a pod on folders that stand for buckets as GCS FUSE answers them.

The kernel stops the caller and asks the shim (https://man7.org/linux/man-pages/man2/seccomp_unotify.2.html), which
looks at the paths and either answers itself or lets the call go on. Only calls that GCS FUSE has another answer for are
asked about, so reading and writing cost nothing. Whoever is held could trick it by changing a path meanwhile: it
imitates, it does not fence in.

    hard link                       ENOSYS
    rename of a folder              EMFILE, where more is in it than rename-dir-limit says
    rename with flags               EINVAL
    named pipe, socket by mknod     ENOTSUP
    chmod, chown                    done, without effect
    lock                            granted, and keeps nobody out: other hosts would not see it

Run with the standard library alone. Linux on x86-64 and arm64; run as a program, it tells whether it can work here.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
import sys
from contextlib import suppress

# Numbers by name: https://github.com/torvalds/linux/blob/master/arch/x86/entry/syscalls/syscall_64.tbl and
# https://github.com/torvalds/linux/blob/master/include/uapi/asm-generic/unistd.h.
_X86 = {"rename": 82, "renameat": 264, "renameat2": 316, "link": 86, "linkat": 265, "mknod": 133, "mknodat": 259}
_X86 |= {"chmod": 90, "fchmod": 91, "fchmodat": 268, "chown": 92, "fchown": 93, "lchown": 94, "fchownat": 260}
_X86 |= {"fchmodat2": 452, "flock": 73, "fcntl": 72}
_ARM = {"renameat": 38, "renameat2": 276, "linkat": 37, "mknodat": 33, "fchmod": 52, "fchmodat": 53, "fchownat": 54}
_ARM |= {"fchown": 55, "fchmodat2": 452, "flock": 32, "fcntl": 25}
_MACHINES = {"x86_64": (0xC000003E, 317, _X86), "aarch64": (0xC00000B7, 277, _ARM)}
_LOCKS = (6, 7, 37, 38)  # F_SETLK, F_SETLKW and those of open files
_LOAD, _IF_EQUAL, _RETURN = 0x20, 0x15, 0x06
_ASK, _ALLOW = 0x7FC00000, 0x7FFF0000
_NEW_LISTENER = 8
_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_GO_ON = 1
_PIDFD_OPEN, _OPENAT2, _PIDFD_GETFD = 434, 437, 438
_IN_ROOT = 0x10
_HERE = -100  # AT_FDCWD

_libc = ctypes.CDLL(None, use_errno=True)


def install() -> int:
    """From now on this process and all that it starts are asked about. A file for who answers; closed by exec."""
    if os.uname().machine not in _MACHINES:
        raise OSError(errno.ENOSYS, os.strerror(errno.ENOSYS))
    arch, seccomp, numbers = _MACHINES[os.uname().machine]
    code = _program(arch, numbers)
    held = ctypes.create_string_buffer(code, len(code))
    program = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(held))
    return _call(seccomp, 1, _NEW_LISTENER, program)


def _program(arch: int, numbers: dict[str, int]) -> bytes:
    asked = sorted(number for name, number in numbers.items() if name != "fcntl")
    lines = [(_LOAD, 0, 0, 4), (_IF_EQUAL, 1, 0, arch), (_RETURN, 0, 0, _ALLOW), (_LOAD, 0, 0, 0)]
    end = len(lines) + len(asked) + 2 + len(_LOCKS) + 1  # where the last line is, which asks
    lines += [(_IF_EQUAL, end - len(lines) - index - 1, 0, number) for index, number in enumerate(asked)]
    lines += [(_IF_EQUAL, 0, 1 + len(_LOCKS), numbers["fcntl"]), (_LOAD, 0, 0, 24)]
    lines += [(_IF_EQUAL, len(_LOCKS) - index, 0, command) for index, command in enumerate(_LOCKS)]
    lines += [(_RETURN, 0, 0, _ALLOW), (_RETURN, 0, 0, _ASK)]
    return b"".join(struct.pack("HBBI", *line) for line in lines)


def listener(pid: int, number: int) -> int:
    """The file that `install` gave to another process."""
    process = _call(_PIDFD_OPEN, pid, 0)
    try:
        return _call(_PIDFD_GETFD, process, number, 0)
    finally:
        os.close(process)


def answer(file: int, buckets: dict[str, int]) -> None:
    """Until nobody is left to ask. `buckets`: by the path that the pod has them at, how much a folder in them may hold
    that is renamed."""
    names = {number: name for name, number in _MACHINES[os.uname().machine][2].items()}
    ids: dict[str, int] = {}
    while True:
        request = ctypes.create_string_buffer(80)
        if _libc.ioctl(file, ctypes.c_ulong(_RECEIVE), request):
            if ctypes.get_errno() in (errno.EINTR, errno.ENOENT):  # who asked was killed meanwhile
                continue
            return
        id_, pid, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", request.raw)
        problem: int | None = None
        with suppress(Exception):  # who asked waits for an answer, and the kernel says what is wrong with the call
            ids = ids or _mounts(pid, buckets)
            problem = _Call(pid, ids, arguments).answer(names[number])
        reply = struct.pack("=QqiI", id_, 0, -(problem or 0), _GO_ON if problem is None else 0)
        _libc.ioctl(file, ctypes.c_ulong(_SEND), reply)


class _Call:
    """What it answers with is an error number, 0 for done, or None: the kernel shall do it."""

    def __init__(self, pid: int, limits: dict[str, int], arguments: list[int]) -> None:
        self._pid, self._limits, self._arguments = pid, limits, arguments

    def answer(self, name: str) -> int | None:
        a, b, c, d, e = self._arguments[:5]
        if name in ("rename", "renameat", "renameat2"):
            return self._rename(_HERE, a, 0) if name == "rename" else self._rename(a, b, e if name[-1] == "2" else 0)
        if name in ("link", "linkat"):
            return self._of(_HERE, b, errno.ENOSYS) if name == "link" else self._of(c, d, errno.ENOSYS)
        if name in ("mknod", "mknodat"):
            at, path, mode = (_HERE, a, b) if name == "mknod" else (a, b, c)
            return self._of(at, path, errno.ENOTSUP) if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
        if name in ("flock", "fcntl", "fchmod", "fchown"):
            return 0 if _mount_of(f"/proc/{self._pid}/fdinfo/{a}") in self._limits else None
        return self._of(a, b, 0) if name.endswith(("at", "at2")) else self._of(_HERE, a, 0)

    def _of(self, at: int, path: int, problem: int) -> int | None:
        """The problem, where the path is of a bucket."""
        with _Folder(self._pid, at, self._text(path)) as folder:
            return problem if folder.mount in self._limits else None

    def _rename(self, at: int, path: int, flags: int) -> int | None:
        with _Folder(self._pid, at, self._text(path)) as folder:
            limit = self._limits.get(folder.mount)
            if limit is None:
                return None
            if flags & 0xFFFFFFFF:
                return errno.EINVAL
            return errno.EMFILE if folder.holds_more(limit) else None

    def _text(self, address: int) -> str:
        memory = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY)
        try:
            read = b""
            while b"\0" not in read and len(read) < 4096:  # not across pages that may not be there
                read += os.pread(memory, 4096 - (address + len(read)) % 4096, address + len(read))
        finally:
            os.close(memory)
        return os.fsdecode(read.partition(b"\0")[0])


class _Folder:
    """The folder that something lies in, as a process sees it, and the name of what lies there."""

    def __init__(self, pid: int, at: int, path: str) -> None:
        parent, _, self._name = path.rstrip("/").rpartition("/")
        number = ctypes.c_int(at & 0xFFFFFFFF).value
        base = "root" if path.startswith("/") else "cwd" if number == _HERE else f"fd/{number}"
        start = os.open(f"/proc/{pid}/{base}", os.O_PATH)
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT if base == "root" else 0)
        try:
            self._file = _call(_OPENAT2, start, os.fsencode(parent or "."), how, len(how))
        finally:
            os.close(start)
        self.mount = _mount_of(f"/proc/self/fdinfo/{self._file}")

    def holds_more(self, limit: int) -> bool:
        """Whether it is a folder itself, with more in it."""
        if not stat.S_ISDIR(os.stat(self._name, dir_fd=self._file, follow_symlinks=False).st_mode):
            return False
        found = 0
        for _, folders, files in os.walk(f"/proc/self/fd/{self._file}/{self._name}"):
            found += len(folders) + len(files)
            if found > limit:
                return True
        return False

    def __enter__(self) -> _Folder:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._file)


def _mount_of(info: str) -> str:
    with open(info, encoding="ascii", errors="replace") as file:
        return next((line.split()[1] for line in file if line.startswith("mnt_id:")), "")


def _mounts(pid: int, buckets: dict[str, int]) -> dict[str, int]:
    """Limits by the ids of mounts. The last one of a path is the one that is seen."""
    found = {}
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            number, _, _, _, point = line.split(" ", 5)[:5]
            path = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), point)
            if path in buckets:
                found[number] = buckets[path]
    return found


def _call(number: int, *arguments: int | bytes) -> int:
    words = [ctypes.c_long(word) if isinstance(word, int) else word for word in arguments]
    result: int = _libc.syscall(ctypes.c_long(number), *words)
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result


def probe() -> int:
    """0 where it can work."""
    _libc.prctl(38, 1, 0, 0, 0)  # no new privileges: anybody may install it then
    try:
        os.close(listener(os.getpid(), install()))
    except OSError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(probe())
