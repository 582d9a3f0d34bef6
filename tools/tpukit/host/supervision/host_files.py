"""Files of the supervisor, and the locks that serialize its requests."""

from __future__ import annotations

import errno
import fcntl
import json
import os
import socket
import time
from contextlib import contextmanager

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
"""The folder of the programs that were sent."""
ROOT = os.path.dirname(os.path.dirname(HERE))  # the folder above programs/HASH


class Refused(Exception):
    """A request that cannot be fulfilled; `kind` gives the reason in machine-readable form."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind = kind


def path(*names: str) -> str:
    return os.path.join(ROOT, *names)


def listed(folder: str) -> list[str]:
    try:
        return sorted(os.listdir(folder))
    except OSError:
        return []


def read(file: str) -> dict[str, Any] | None:
    """Read a JSON file; None if it is missing or blank."""
    try:
        with open(file, encoding="utf-8") as content:
            text = content.read().strip("\0 \n")
    except FileNotFoundError:
        return None
    value: dict[str, Any] | None = json.loads(text) if text else None
    return value


def write(file: str, value: dict[str, Any]) -> None:
    new = f"{file}.{os.getpid()}"
    with open(new, "w", encoding="utf-8") as content:
        json.dump(value, content)
        content.flush()
        os.fsync(content.fileno())
    os.replace(new, file)


@contextmanager
def locked(name: str = "lock") -> Iterator[None]:
    """Run one request of this kind at a time.

    The lock file queues the requests; a program can remove it, so the name in the kernel decides.
    """
    os.makedirs(ROOT, mode=0o700, exist_ok=True)
    handle = os.open(path(name), os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as kernel:
            take_name(kernel, name)
            yield
    finally:
        os.close(handle)


def take_name(kernel: socket.socket, name: str) -> None:
    """Bind an abstract address, which the kernel keeps while this process lives; wait while another process has it."""
    home = os.stat(os.path.dirname(ROOT))  # hosts that share a kernel have equal paths on different disks
    address = f"\0{os.path.basename(ROOT)} {home.st_dev} {home.st_ino} {name}"
    while True:
        try:
            return kernel.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        time.sleep(0.02)


def is_locked(file: str) -> bool:
    try:
        handle = os.open(file, os.O_RDONLY)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False
