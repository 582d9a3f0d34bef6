"""Answer some system calls of a pod on folders that stand for buckets as GCS FUSE does.

The kernel stops the caller (see `call_filter`) and asks the shim, which checks the paths and either answers itself or
lets the call continue. Only calls that GCS FUSE answers differently are filtered, so reading and writing cost nothing.
The caller could trick it by changing a path meanwhile: this is an imitation, not a security boundary.

    hard link                       ENOSYS
    rename of a folder              EMFILE, if it holds more than rename-dir-limit allows
    rename with flags               EINVAL
    named pipe, socket by mknod     ENOTSUP
    fallocate, setxattr, O_TMPFILE  ENOTSUP
    new name with a line break      EINVAL: no object can have it
    chmod, chown                    success, without effect
    lock                            granted without excluding others: other hosts would not see it
    writing without permission      EACCES in denied folders; the kernel refuses the rest there,
                                    because they are mounted read-only

Uses the standard library only.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import struct
from contextlib import suppress

import call_filter  # type: ignore[import-not-found]  # beside this file

_RECEIVE, _SEND = 0xC0502100, 0xC0182101
_GO_ON = 1
_OPENAT2 = 437
_IN_ROOT = 0x10
_BREAK = re.compile("[\\r\\n]")
_HERE = -100  # AT_FDCWD

_libc = ctypes.CDLL(None, use_errno=True)


def answer(file: int, buckets: dict[str, int], denied: list[str]) -> None:
    """Answer calls until no filtered process is left.

    `buckets`: the rename limit of each bucket by its path in the pod; `denied`: those that are read-only for the pod.
    """
    names = call_filter.names()
    ids: dict[str, int] = {}
    shut: set[str] = set()
    while True:
        request = ctypes.create_string_buffer(80)
        if _libc.ioctl(file, ctypes.c_ulong(_RECEIVE), request):
            if ctypes.get_errno() in (errno.EINTR, errno.ENOENT):  # the caller was killed meanwhile
                continue
            return
        id_, pid, _, number, _, _, *arguments = struct.unpack("=QIIiIQ6Q", request.raw)
        problem: int | None = None
        with suppress(Exception):  # the caller waits for an answer, and the kernel reports what is wrong with the call
            if not ids:
                ids, shut = _mounts(pid, buckets), set(_mounts(pid, dict.fromkeys(denied, 0)))
            problem = _Call(pid, ids, shut, arguments).answer(names[number])
        reply = struct.pack("=QqiI", id_, 0, -(problem or 0), _GO_ON if problem is None else 0)
        _libc.ioctl(file, ctypes.c_ulong(_SEND), reply)


class _Call:
    """A system call to answer with an error number, 0 for success, or None to let the kernel do it."""

    def __init__(self, pid: int, limits: dict[str, int], denied: set[str], arguments: list[int]) -> None:
        self._pid, self._limits, self._denied, self._arguments = pid, limits, denied, arguments

    def answer(self, name: str) -> int | None:
        a, b, c, d, e = self._arguments[:5]
        if name in ("rename", "renameat", "renameat2"):
            flags = e if name[-1] == "2" else 0
            return self._rename((_HERE, a), (_HERE, b), 0) if name == "rename" else self._rename((a, b), (c, d), flags)
        if name in ("link", "linkat"):
            return self._of(_HERE, b, errno.ENOSYS) if name == "link" else self._of(c, d, errno.ENOSYS)
        if name in ("mknod", "mknodat"):
            at, path, mode = (_HERE, a, b) if name == "mknod" else (a, b, c)
            return self._of(at, path, errno.ENOTSUP) if stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) else None
        if name in ("open", "creat", "openat"):
            at, path, flags = (
                (a, b, c)
                if name == "openat"
                else (_HERE, a, b if name == "open" else call_filter.CREATES | call_filter.WRITES)
            )
            return self._open(at, path, flags)
        if name in ("mkdir", "mkdirat", "symlink", "symlinkat"):
            return self._new(
                *{"mkdir": (_HERE, a), "mkdirat": (a, b), "symlink": (_HERE, b), "symlinkat": (b, c)}[name]
            )
        if name in ("fallocate", "fsetxattr", "flock", "fcntl", "fchmod", "fchown"):
            problem = errno.ENOTSUP if name in ("fallocate", "fsetxattr") else 0
            return problem if _mount_of(f"/proc/{self._pid}/fdinfo/{a}") in self._limits else None
        if name in ("setxattr", "lsetxattr"):
            return self._of(_HERE, a, errno.ENOTSUP)
        return self._of(a, b, 0) if name.endswith(("at", "at2")) else self._of(_HERE, a, 0)

    def _of(self, at: int, path: int, problem: int) -> int | None:
        """Return `problem` if the path is in a bucket."""
        with _Folder(self._pid, at, self._text(path)) as folder:
            return problem if folder.mount in self._limits else None

    def _open(self, at: int, path: int, flags: int) -> int | None:
        text = self._text(path)
        if not self._denied and not flags & call_filter.UNNAMED and not _BREAK.search(text):
            return None  # the common case: nothing to check
        with _Folder(self._pid, at, text) as folder:
            if flags & call_filter.UNNAMED:  # the path is that of the folder
                return errno.ENOTSUP if folder.inside() in self._limits else None
            if folder.mount in self._denied and (flags & call_filter.WRITES or not folder.has_name()):
                return errno.EACCES
            return self._name(folder) if flags & call_filter.CREATES and not folder.has_name() else None

    def _new(self, at: int, path: int) -> int | None:
        text = self._text(path)
        if not self._denied and not _BREAK.search(text):
            return None
        with _Folder(self._pid, at, text) as folder:
            return errno.EACCES if folder.mount in self._denied else self._name(folder)

    def _name(self, folder: _Folder) -> int | None:
        """Return the error for an invalid name of something new."""
        return errno.EINVAL if folder.mount in self._limits and _BREAK.search(folder.name) else None

    def _rename(self, old: tuple[int, int], new: tuple[int, int], flags: int) -> int | None:
        with _Folder(self._pid, old[0], self._text(old[1])) as folder:
            limit = self._limits.get(folder.mount)
            if folder.mount in self._denied:
                return errno.EACCES
            if limit is not None and flags & 0xFFFFFFFF:
                return errno.EINVAL
            if limit is not None and folder.holds_more(limit):
                return errno.EMFILE
        text = self._text(new[1])
        if not _BREAK.search(text):
            return None
        with _Folder(self._pid, new[0], text) as folder:
            return self._name(folder)

    def _text(self, address: int) -> str:
        memory = os.open(f"/proc/{self._pid}/mem", os.O_RDONLY)
        try:
            read = b""
            while b"\0" not in read and len(read) < 4096:  # not across pages, which may be unmapped
                read += os.pread(memory, 4096 - (address + len(read)) % 4096, address + len(read))
        finally:
            os.close(memory)
        return os.fsdecode(read.partition(b"\0")[0])


class _Folder:
    """The folder that contains a path, as a process sees it, and the last name of the path."""

    def __init__(self, pid: int, at: int, path: str) -> None:
        parent, _, self.name = path.rstrip("/").rpartition("/")
        number = ctypes.c_int(at & 0xFFFFFFFF).value
        base = "root" if path.startswith("/") else "cwd" if number == _HERE else f"fd/{number}"
        start = os.open(f"/proc/{pid}/{base}", os.O_PATH)
        how = struct.pack("=QQQ", os.O_PATH | os.O_CLOEXEC, 0, _IN_ROOT if base == "root" else 0)
        try:
            self._file = call_filter.call(_OPENAT2, start, os.fsencode(parent or "."), how, len(how))
        finally:
            os.close(start)
        self.mount = _mount_of(f"/proc/self/fdinfo/{self._file}")

    def has_name(self) -> bool:
        """Return whether the name exists in the folder."""
        try:
            os.stat(self.name, dir_fd=self._file, follow_symlinks=False)
        except OSError:
            return False
        return True

    def inside(self) -> str:
        """Return the mount that is seen at the path itself."""
        own = call_filter.call(
            _OPENAT2, self._file, os.fsencode(self.name or "."), struct.pack("=QQQ", os.O_PATH, 0, 0), 24
        )
        try:
            return _mount_of(f"/proc/self/fdinfo/{own}")
        finally:
            os.close(own)

    def holds_more(self, limit: int) -> bool:
        """Return whether the path is a folder that holds more than `limit` entries."""
        if not stat.S_ISDIR(os.stat(self.name, dir_fd=self._file, follow_symlinks=False).st_mode):
            return False
        found = 0
        for _, folders, files in os.walk(f"/proc/self/fd/{self._file}/{self.name}"):
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
    """Return limits by mount id. The last mount on a path is the visible one."""
    found = {}
    with open(f"/proc/{pid}/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
        for line in file:
            number, _, _, _, point = line.split(" ", 5)[:5]
            path = re.sub(r"\\(\d{3})", lambda match: chr(int(match[1], 8)), point)
            if path in buckets:
                found[number] = buckets[path]
    return found
