"""Logs of hosts on this machine: what was read of them stays when the TPU VM is gone."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.places.base import Handle
from tpukit.places.tpu_vm.asking import bytes_of


@dataclass(frozen=True, slots=True)
class LogStore:
    root: Path

    def path(self, handle: Handle, host: str) -> Path:
        return self.root / "runs" / handle.plan.id / f"attempt-{handle.attempt.number}" / host / "log"

    def position(self, handle: Handle, host: str) -> int:
        """Bytes that are there already."""
        try:
            return self.path(handle, host).stat().st_size
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
        finally:
            os.close(descriptor)
        return bool(piece["at"] + len(content) < piece["size"])
