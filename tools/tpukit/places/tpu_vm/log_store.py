"""Logs of hosts on this machine: what was read of them stays when the TPU VM is gone.

A disk that is full stops the copies, and never the job that is copied from.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.places.base import Handle
from tpukit.places.tpu_vm.asking import bytes_of

MOST_BYTES = 64 << 20
"""Of one host's log that this machine keeps: the newest. All of it is on the host while that is there."""
_BLOCK = 4096
_PUNCH_HOLE_KEEP_SIZE = 0x03  # linux/falloc.h


@dataclass(frozen=True, slots=True)
class LogStore:
    root: Path

    def path(self, handle: Handle, host: str) -> Path:
        return Path(f"{self.root}/runs/{handle.plan.id}/attempt-{handle.attempt.number}/{host}/log")

    def take(self, handle: Handle, host: str, piece: Mapping[str, Any] | None) -> bool:
        """Store what a host sent, as `add` does; False where this machine cannot store it."""
        try:
            return self.add(handle, host, piece)
        except OSError:
            return False

    def position(self, handle: Handle, host: str) -> int:
        """Return how much of the host's log was read."""
        try:
            return self.path(handle, host).stat().st_size
        except OSError:
            return 0

    def start(self, handle: Handle, host: str) -> int:
        """Return from which byte on the copy is kept; 0 unless it was too long."""
        try:
            with self.path(handle, host).open("rb") as log:
                return os.lseek(log.fileno(), 0, os.SEEK_DATA)
        except OSError:
            return 0

    def add(self, handle: Handle, host: str, piece: Mapping[str, Any] | None) -> bool:
        """Store what a host sent; whether there is more of it there. Written at its position: twice is once."""
        content = bytes_of(piece) if piece else b""
        if not piece or not content:
            return False
        file = self.path(handle, host)
        if piece["at"] > self.position(handle, host):  # somebody removed what was here
            return True
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            os.pwrite(descriptor, content, piece["at"])
            _bound(descriptor)
        finally:
            os.close(descriptor)
        return bool(piece["at"] + len(content) < piece["size"])


def _bound(descriptor: int) -> None:
    """Free the blocks of all but the newest bytes. Positions stay what they are, for every process that reads along."""
    told = os.fstat(descriptor)
    if told.st_blocks * 512 <= 2 * MOST_BYTES:
        return
    old = (told.st_size - MOST_BYTES) // _BLOCK * _BLOCK
    with suppress(AttributeError, OSError):  # another system than Linux keeps all of it
        length = ctypes.c_longlong(old)
        ctypes.CDLL(None).fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_longlong(0), length)
