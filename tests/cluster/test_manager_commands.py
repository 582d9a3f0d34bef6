"""Every short command line of the job manager against the emulator.

TPU VMs are created, used over SSH, mounted and deleted as on Google Cloud.
"""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from support.manager_desk import Typing, type_every_line
from support.tpu_vm_world import NODES, PROJECT, TpuVms


def test_every_short_command_line_runs_in_the_sandbox(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    (tmp_path / "code").mkdir()
    with TpuVms(tmp_path / "google") as vms:
        for name, value in vms.emulator.environment().items():
            monkeypatch.setenv(name, value)
        desk = Typing(tmp_path / "home", tmp_path / "code", monkeypatch, PROJECT)
        try:
            type_every_line(desk)
            assert vms.ask("GET", NODES)["nodes"], "the lines have made TPU VMs"
        finally:
            desk.forget()
            for number, handler in heard.items():
                signal.signal(number, handler)
