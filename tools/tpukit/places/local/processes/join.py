"""Run a command beside a process of a pod, with its files, folder, host name and user, and at most its privileges.

Run as a file, with the standard library only. Arguments: PID, the confinement in pod.json, and the command. Linux only.
"""

from __future__ import annotations

import ctypes
import fcntl
import json
import os
import sys
import termios
from contextlib import suppress

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import confine  # type: ignore[import-not-found]  # beside this file

_libc = ctypes.CDLL(None, use_errno=True)


def main(pid: str, confined: str, *command: str) -> int:
    told = json.loads(confined)
    try:
        _enter(f"/proc/{pid}")
        if told:
            confine.confine(told["capabilities"], no_new_privileges=told["no_new_privileges"])
        if os.isatty(0):
            fcntl.ioctl(0, termios.TIOCSCTTY, 0)  # so that the terminal can interrupt it
            os.environ.setdefault("TERM", "xterm")
        os.execvp(command[0], command)
    except OSError as problem:
        print(f"{command[0]}: {problem.strerror}", file=sys.stderr)
        return 127 if isinstance(problem, FileNotFoundError) else 126


def _enter(process: str) -> None:
    # The user namespace first, which grants the right to enter the others.
    kinds = ("user", "uts", "mnt")
    names = [name for name in kinds if not os.path.samefile(f"{process}/ns/{name}", f"/proc/self/ns/{name}")]
    if "user" in names:
        with suppress(PermissionError):
            os.setgroups([])
    spaces = [os.open(f"{process}/ns/{name}", os.O_RDONLY) for name in names]
    root, folder = (os.open(f"{process}/{name}", os.O_PATH | os.O_DIRECTORY) for name in ("root", "cwd"))
    for space in spaces:
        if _libc.setns(space, 0):
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number))
    os.fchdir(root)
    os.chroot(".")
    os.fchdir(folder)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
