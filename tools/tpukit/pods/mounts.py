"""A file system of its own for one process: the machine's, with other files and folders over it.

Run by the shim between fork and exec, with the standard library alone. Needs no rights where the kernel lets anybody
make user namespaces; the process keeps its user id either way. Nothing is made or changed on the machine: a mount
point that does not exist is made in a copy of the folder around it, and what is written straight into such a copy goes
away with the process, as what a container writes outside its volumes does.
"""

from __future__ import annotations

import ctypes
import os
import stat
import sys
from contextlib import suppress

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_UNBINDABLE, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 17, 1 << 18

_libc = ctypes.CDLL(None, use_errno=True)


def enter(root: str, mounts: list[tuple[str, str, bool]]) -> None:
    """Make `root` (an empty folder) this process's root. Mounts are source, target and whether it is read only."""
    _unshare()
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", 0)
    mount("none", root, "", MS_UNBINDABLE)  # or it would hold itself
    view = _View(root)
    for source, target, read_only in mounts:
        view.place(source, os.path.realpath(target), read_only)
    os.chroot(root)
    os.chdir("/")


class _View:
    def __init__(self, root: str) -> None:
        self._root = root
        self._copies = {"/"}
        self._placed: list[str] = []
        _mirror("/", root)

    def place(self, source: str, target: str, read_only: bool) -> None:
        self._make(target, folder=os.path.isdir(source))
        path = self._root + target
        mount(source, path, "", MS_BIND | MS_REC)
        if read_only:
            with suppress(PermissionError):  # in a user namespace, a mount with other locked flags keeps them all
                mount("none", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY)
        self._placed.append(target)

    def _make(self, target: str, *, folder: bool) -> None:
        parent = os.path.dirname(target)
        path = self._root + target
        if target == "/" or os.path.lexists(path):
            return
        self._make(parent, folder=True)
        if parent not in self._copies and not any(f"{parent}/".startswith(f"{placed}/") for placed in self._placed):
            self._copy(parent)
        if folder:
            os.mkdir(path)
            self._copies.add(target)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))

    def _copy(self, folder: str) -> None:
        """Lay an own folder over one of the machine's, with the same things in it."""
        path = self._root + folder
        under = os.open(path, os.O_PATH | os.O_DIRECTORY)
        mount("tmpfs", path, "tmpfs", 0)
        _mirror(f"/proc/self/fd/{under}", path)
        os.close(under)
        self._copies.add(folder)


def _mirror(folder: str, to: str) -> None:
    os.chmod(to, stat.S_IMODE(os.stat(folder).st_mode))
    for entry in list(os.scandir(folder)):
        path = os.path.join(to, entry.name)
        if entry.is_symlink():
            os.symlink(os.readlink(entry.path), path)
            continue
        if entry.is_dir():
            os.mkdir(path)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))
        with suppress(OSError):  # what went away meanwhile
            mount(entry.path, path, "", MS_BIND | MS_REC)


def _unshare() -> None:
    if _libc.unshare(CLONE_NEWNS) == 0:
        return
    user, group = os.getuid(), os.getgid()
    if _libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
        raise _error("mount namespace")
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def separate_name() -> None:
    """After `enter`: a host name of its own, which is the machine's until it is changed."""
    if _libc.unshare(CLONE_NEWUTS):
        raise _error("host name")


def unmount(target: str) -> None:
    if _libc.umount2(os.fsencode(target), 0):
        raise _error(f"unmounting {target}")


def mount(source: str, target: str, kind: str, flags: int) -> None:
    data = b"mode=755" if kind == "tmpfs" else None
    if _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data):
        raise _error(f"mounting {source} at {target}")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)


def probe(folder: str) -> int:
    """0 where processes can have a file system of their own; `folder` is empty."""
    try:
        enter(folder, [("/etc/hosts", "/tpukit/probe", True)])
    except OSError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0 if os.path.exists("/tpukit/probe") else 1


if __name__ == "__main__":
    sys.exit(probe(sys.argv[1]))
