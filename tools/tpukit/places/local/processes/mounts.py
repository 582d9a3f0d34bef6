"""A file system of its own for one process: the machine's, with other files and folders over it.

Run by the shim between fork and exec, with the standard library alone. Needs no rights where the kernel lets anybody
make user namespaces; the process keeps its user id either way, unless it is to see another one: outside it stays who
it was, so files that it makes belong to who started it. Nothing is made or changed on the machine: a mount point that
does not exist is made in a copy of the folder around it, and what is written straight into such a copy goes away with
the process, as what a container writes outside its volumes does.
"""

from __future__ import annotations

import ctypes
import errno
import os
import re
import stat
import sys
from collections.abc import Collection, Sequence
from contextlib import suppress

CLONE_NEWNS, CLONE_NEWUTS, CLONE_NEWUSER = 0x00020000, 0x04000000, 0x10000000
MS_RDONLY, MS_REMOUNT, MS_BIND, MS_REC, MS_UNBINDABLE, MS_PRIVATE = 1, 32, 4096, 16384, 1 << 17, 1 << 18
LOCKED = {"nosuid": 2, "nodev": 4, "noexec": 8}  # flags that a mount has to keep in a user namespace

_libc = ctypes.CDLL(None, use_errno=True)


def enter(
    root: str,
    mounts: list[tuple[str, str, bool]],
    *,
    absent: Sequence[str] = (),
    user: tuple[int, int] | None = None,
    read_only: bool = False,
    shared_memory: int = 0,
    folders: Sequence[str] = (),
    empty: Sequence[str] = (),
) -> None:
    """Make `root` (an empty folder) this process's root. Mounts are source, target and whether it is read only.

    `absent`: paths that are not there for it. `user`: the ids of user and group that the process sees itself run as.
    `read_only`: all that is not in `mounts`. `shared_memory`: bytes of a /dev/shm of its own; 0: the machine's.
    `folders`: are there for it, empty where the machine has none. `empty`: hold nothing for it but `mounts`.
    """
    _unshare(user)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", 0)
    mount("none", root, "", MS_UNBINDABLE)  # or it would hold itself
    view = _View(root)
    if shared_memory:
        view.place_memory("/dev/shm", shared_memory)  # noqa: S108 (its own)
    for folder in empty:
        view.empty(os.path.realpath(folder))
    targets = [os.path.realpath(target) for _, target, _ in mounts]
    for index, (source, _, fixed) in enumerate(mounts):
        view.place(source, targets[index], fixed, targets[index + 1 :])
    view.fix_holders()
    for folder in folders:
        view.make(os.path.realpath(folder), folder=True)
    view.leave_out(absent)
    if read_only:
        view.fix()
    os.chroot(root)
    os.chdir("/")


class _View:
    def __init__(self, root: str) -> None:
        self._root = root
        self._copies = {"/"}
        self._placed: dict[str, bool] = {}  # whether it is read only
        self._holders: list[str] = []  # read only, and others lie in them
        _mirror("/", root)

    def place(self, source: str, target: str, read_only: bool, later: Sequence[str]) -> None:
        """`later`: where others are placed after it. One that they lie in is written to until they have their place."""
        self.make(target, folder=os.path.isdir(source))
        mount(source, self._root + target, "", MS_BIND | MS_REC)
        self._placed[target] = read_only
        if read_only and any(other.startswith(f"{target}/") for other in later):
            self._holders.append(target)
        elif read_only:
            self._fix(target)

    def fix_holders(self) -> None:
        for target in self._holders:
            self._fix(target)

    def _fix(self, target: str) -> None:
        path = self._root + target
        flags = os.statvfs(path).f_flag & sum(LOCKED.values())
        mount("none", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | flags)

    def place_memory(self, target: str, size: int) -> None:
        self.make(target, folder=True)
        mount("tmpfs", self._root + target, "tmpfs", sum(LOCKED.values()), f"mode=1777,size={size}")
        self._placed[target] = False

    def empty(self, target: str) -> None:
        self.make(target, folder=True)
        mount("tmpfs", self._root + target, "tmpfs", 0, "mode=1777")
        self._copies.add(target)

    def leave_out(self, paths: Sequence[str]) -> None:
        """The folders around them are copies without them."""
        without: dict[str, set[str]] = {}
        for path in paths:
            folder, name = os.path.split(os.path.realpath(path))
            without.setdefault(folder, set()).add(name)
        for folder in sorted(without):  # each before those in it
            self._copy(folder, without[folder])

    def fix(self) -> None:
        """Let nothing be written but through what was placed to be written to."""
        with open("/proc/self/mountinfo", encoding="utf-8", errors="surrogateescape") as file:
            lines = [line.split(" ", 6)[4:6] for line in file]
        for point, options in lines:
            path = re.sub(r"\\(\d{3})", lambda found: chr(int(found[1], 8)), point)
            inside = path.removeprefix(self._root)
            if (path != self._root and not path.startswith(f"{self._root}/")) or self._writable(inside):
                continue
            flags = sum(LOCKED.get(option, 0) for option in options.split(","))
            try:
                mount("none", path, "", MS_BIND | MS_REMOUNT | MS_RDONLY | flags)
            except OSError as problem:  # what lies under another mount, or in a folder that is shut, nobody can reach
                if problem.errno not in (errno.EINVAL, errno.ENOENT, errno.EACCES):
                    raise

    def _writable(self, target: str) -> bool:
        around = [placed for placed in self._placed if f"{target}/".startswith(f"{placed}/")]
        return bool(around) and not self._placed[max(around, key=len)]

    def make(self, target: str, *, folder: bool) -> None:
        """A file or folder at this path, where there is none."""
        parent = os.path.dirname(target)
        path = self._root + target
        if target == "/" or os.path.lexists(path):
            return
        self.make(parent, folder=True)
        if parent not in self._copies and not any(f"{parent}/".startswith(f"{placed}/") for placed in self._placed):
            self._copy(parent)
        if folder:
            os.mkdir(path)
            self._copies.add(target)
        else:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o666))

    def _copy(self, folder: str, without: Collection[str] = ()) -> None:
        """Lay an own folder over one of the machine's, with the same things in it."""
        path = self._root + folder
        under = os.open(path, os.O_PATH | os.O_DIRECTORY)
        mount("tmpfs", path, "tmpfs", 0)
        _mirror(f"/proc/self/fd/{under}", path, without)
        os.close(under)
        self._copies.add(folder)


def _mirror(folder: str, to: str, without: Collection[str] = ()) -> None:
    os.chmod(to, stat.S_IMODE(os.stat(folder).st_mode))
    for entry in [entry for entry in os.scandir(folder) if entry.name not in without]:
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


def _unshare(inside: tuple[int, int] | None) -> None:
    own = user, group = os.getuid(), os.getgid()
    if (inside is None or inside == own) and _libc.unshare(CLONE_NEWNS) == 0:
        return
    if inside is not None:
        with suppress(PermissionError):  # the groups of who starts it are none of its own
            os.setgroups([])
    if _libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
        raise _error("mount namespace")
    to = inside or own
    for name, text in (("setgroups", "deny"), ("uid_map", f"{to[0]} {user} 1"), ("gid_map", f"{to[1]} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def separate_name(name: str = "") -> None:
    """After `enter`: a host name of its own, which is the machine's until it is changed."""
    if _libc.unshare(CLONE_NEWUTS) or (name and _libc.sethostname(os.fsencode(name), len(os.fsencode(name)))):
        raise _error("host name")


def unmount(target: str) -> None:
    if _libc.umount2(os.fsencode(target), 0):
        raise _error(f"unmounting {target}")


def mount(source: str, target: str, kind: str, flags: int, options: str = "mode=755") -> None:
    data = options.encode() if kind == "tmpfs" else None
    if _libc.mount(os.fsencode(source), os.fsencode(target), kind.encode() or None, flags, data):
        raise _error(f"mounting {source} at {target}")


def _error(what: str) -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number), what)


def probe(folder: str, *ids: str) -> int:
    """0 where processes can have a file system and a host name of their own, and see themselves run with these ids of
    user and group; `folder` is empty."""
    user = (int(ids[0]), int(ids[1])) if ids else None
    try:
        enter(folder, [("/etc/hosts", "/tpukit/probe", True)], user=user)
        separate_name()
    except OSError as problem:
        print(problem, file=sys.stderr)
        return 1
    return 0 if os.path.exists("/tpukit/probe") and user in (None, (os.getuid(), os.getgid())) else 1


if __name__ == "__main__":
    sys.exit(probe(*sys.argv[1:]))
