"""A private file system for one process: the machine's, with other files and folders mounted over it.

Runs in the shim between fork and exec, with the standard library only. It needs no privileges where the kernel allows
user namespaces for all users. The process keeps its user id either way, unless it is to see another one; outside it
stays the same user, so its files belong to the user that started it. Nothing changes on the machine: a missing mount
point is created in a copy of its parent folder, and what the process writes into such a copy is lost with the process,
like what a container writes outside its volumes.
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
    """Make `root` (an empty folder) this process's root. Each mount is its source, target and whether it is read-only.

    `absent`: paths hidden from the process. `user`: the ids of user and group that the process sees itself run as.
    `read_only`: everything except `mounts`. `shared_memory`: bytes of its own /dev/shm; 0: the machine's. `folders`:
    created empty where the machine has none. `empty`: only show `mounts`.
    """
    _unshare(user)
    mount("none", "/", "", MS_REC | MS_PRIVATE)
    mount("tmpfs", root, "tmpfs", 0)
    mount("none", root, "", MS_UNBINDABLE)  # or it would contain itself
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
        self._placed: dict[str, bool] = {}  # by target: whether it is read-only
        self._holders: list[str] = []  # read-only targets that contain other targets
        _mirror("/", root)

    def place(self, source: str, target: str, read_only: bool, later: Sequence[str]) -> None:
        """Place a mount. `later`: targets placed after it; a mount that contains one stays writable until then."""
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
        """Hide paths by copying their parent folders without them."""
        without: dict[str, set[str]] = {}
        for path in paths:
            folder, name = os.path.split(os.path.realpath(path))
            without.setdefault(folder, set()).add(name)
        for folder in sorted(without):  # each before those in it
            self._copy(folder, without[folder])

    def fix(self) -> None:
        """Make everything read-only except what was placed as writable."""
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
            except OSError as problem:  # under another mount, or in an unreadable folder: unreachable
                if problem.errno not in (errno.EINVAL, errno.ENOENT, errno.EACCES):
                    raise

    def _writable(self, target: str) -> bool:
        around = [placed for placed in self._placed if f"{target}/".startswith(f"{placed}/")]
        return bool(around) and not self._placed[max(around, key=len)]

    def make(self, target: str, *, folder: bool) -> None:
        """Create a file or folder at this path if there is none."""
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
        """Mount a private folder over one of the machine's, with the same entries."""
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
        with suppress(OSError):  # removed meanwhile
            mount(entry.path, path, "", MS_BIND | MS_REC)


def _unshare(inside: tuple[int, int] | None) -> None:
    own = user, group = os.getuid(), os.getgid()
    if (inside is None or inside == own) and _libc.unshare(CLONE_NEWNS) == 0:
        return
    if inside is not None:
        with suppress(PermissionError):  # drop the groups of the user that starts it
            os.setgroups([])
    if _libc.unshare(CLONE_NEWUSER | CLONE_NEWNS):
        raise _error("mount namespace")
    to = inside or own
    for name, text in (("setgroups", "deny"), ("uid_map", f"{to[0]} {user} 1"), ("gid_map", f"{to[1]} {group} 1")):
        with open(f"/proc/self/{name}", "w", encoding="ascii") as file:
            file.write(text)


def separate_name(name: str = "") -> None:
    """Set a private host name, initially the machine's. Call after `enter`."""
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
    """Return 0 if processes can have their own file system, host name, and these ids of user and group.

    `folder` is empty.
    """
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
