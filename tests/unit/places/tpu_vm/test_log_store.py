"""Copies of hosts' logs on the driver's machine: bounded, and never a reason for a job to stop."""

from __future__ import annotations

import base64
import errno
import os
from pathlib import Path
from typing import Any

import pytest

from tpukit.places.tpu_vm import log_store
from tpukit.places.tpu_vm.log_store import LogStore
from unit.places.tpu_vm.test_machines import handle

HOST = "train-0-0"


def piece(at: int, content: bytes, size: int) -> dict[str, Any]:
    return {"at": at, "bytes": base64.b64encode(content).decode(), "size": size}


def test_full_disk_stops_the_copy_and_nothing_else(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs = LogStore(tmp_path)

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr(os, "pwrite", full)
        assert logs.take(handle(), HOST, piece(0, b"step 1\n", 14)) is False
    assert logs.position(handle(), HOST) == 0
    assert logs.take(handle(), HOST, piece(0, b"step 1\n", 14)) is True, "it goes on once there is room"


def test_copy_of_a_long_log_keeps_its_newest_bytes_and_its_positions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_store, "MOST_BYTES", 64 << 10)
    logs, line = LogStore(tmp_path), b"x" * 1023 + b"\n"
    for number in range(64):
        logs.take(handle(), HOST, piece(number * 16384, line * 16, 1 << 20))
    file = logs.path(handle(), HOST)
    assert logs.position(handle(), HOST) == file.stat().st_size == 1 << 20
    assert file.stat().st_blocks * 512 <= 3 * (64 << 10)
    start = logs.start(handle(), HOST)
    assert (1 << 20) - start >= 64 << 10
    assert file.read_bytes()[start:].replace(line, b"") == b""
