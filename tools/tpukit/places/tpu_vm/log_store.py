"""Local copies of host logs, which stay when the TPU VM is gone.

A full disk stops the copies, and never the job.
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
"""Bytes of one host's log that this machine keeps, the newest. The host itself keeps all of it."""
_BLOCK = 4096
_PUNCH_HOLE_KEEP_SIZE = 0x03  # linux/falloc.h


@dataclass(frozen=True, slots=True)
class LogStore:
    root: Path

    def path(self, handle: Handle, host: str) -> Path:
        return Path(f"{self.root}/runs/{handle.plan.id}/attempt-{handle.attempt.number}/{host}/log")

    def take(self, handle: Handle, host: str, piece: Mapping[str, Any] | None) -> bool:
        """Store what a host sent, as `add` does; False if this machine cannot store it."""
        try:
            return self.add(handle, host, piece)
        except OSError:
            return False

    def position(self, handle: Handle, host: str) -> int:
        """Return the number of bytes of the host's log that were read."""
        try:
            return self.path(handle, host).stat().st_size
        except OSError:
            return 0

    def start(self, handle: Handle, host: str) -> int:
        """Return the first byte that the copy still has; 0 unless the log was too long."""
        try:
            with self.path(handle, host).open("rb") as log:
                return os.lseek(log.fileno(), 0, os.SEEK_DATA)
        except OSError:
            return 0

    def add(self, handle: Handle, host: str, piece: Mapping[str, Any] | None) -> bool:
        """Store what a host sent at its position, and return whether the host has more. Idempotent."""
        content = bytes_of(piece) if piece else b""
        if not piece or not content:
            return False
        file = self.path(handle, host)
        if piece["at"] > self.position(handle, host):  # the local copy was removed
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
    """Free the blocks of all but the newest bytes. Positions stay the same for concurrent readers."""
    told = os.fstat(descriptor)
    if told.st_blocks * 512 <= 2 * MOST_BYTES:
        return
    old = (told.st_size - MOST_BYTES) // _BLOCK * _BLOCK
    with suppress(AttributeError, OSError):  # systems other than Linux keep all of it
        length = ctypes.c_longlong(old)
        ctypes.CDLL(None).fallocate(descriptor, _PUNCH_HOLE_KEEP_SIZE, ctypes.c_longlong(0), length)
