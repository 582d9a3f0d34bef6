"""Somebody who types `tpu` commands of the job manager, on a cloud of TPU VMs that acts by itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace as changed

from tpukit import cli
from tpukit.cli import context, spellings, vm_doctor, vms
from tpukit.clock import SystemClock
from tpukit.errors import TpukitError
from tpukit.manager import machines, windows
from tpukit.manager.doctor import Done
from tpukit.places.local import LocalPlace
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.reasons import State
from tpukit.records import JOBS
from tpukit.store import change
from unit.simulated_tpu_cloud import Hosts, TpuCloud

MEANT = {
    **{"username": "xibo", "USER": "xibo", "alias": "mine", "FULL_TPU_NAME": "g-v4-8-9", "tpu_name": "g-v4-8-1"},
    **{"your_alias": "own", "alias_name": "own", "FULL_NAME": "config.x.y", "full_name": "config.x.y"},
    **{"key": "monitor_length", "value": "500", "num": "2", "command": "kill"},
}
"""What a person writes in place of the words that stand for something."""


class Cloud(TpuCloud):
    def stop(self, zone: str, name: str) -> None:
        self.made[name] = replace(self.made[name], state="STOPPED")

    def start(self, zone: str, name: str) -> None:
        self.made[name] = replace(self.made[name], state="READY")


class Shell:
    """Hosts on which everything is as it should be."""

    def __init__(self, vm: Any) -> None:
        self._mounted = False

    def run(self, argv: Sequence[str], seconds: float = 60.0) -> list[Done | TpukitError]:
        words = [word for word in argv if word != "sudo"]
        self._mounted = self._mounted or words[0] == "mount"
        said = {"date": f"{int(context.CLOCK.now())}", "df": "/dev/sda 1 1 99999999 1% /"}.get(words[0], "")
        chips = "4" if "jax.local_devices" in words[-1] else said
        return [Done(int(words[0] == "mountpoint" and not self._mounted), chips)]

    def close(self) -> None:
        pass


class Desk:
    def __init__(self, home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.cloud, self._runner = Cloud(home / "hosts"), CliRunner()
        settings = folder / "settings.yaml"
        settings.write_text("project: my-project-1\nzone: us-central2-b\n")
        for name, value in {"TPUKIT_HOME": str(home), "TPUKIT_SETTINGS": str(settings), "TPUKIT_USER": "xibo"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("TPUKIT_STORE", raising=False)
        self._cached = (context.store, context.places, vms.settings, vms.cloud)
        self.forget()
        hosts = Hosts(self.cloud)
        root = home / "data"
        root.mkdir()
        place = TpuVmPlace(
            *(root, SystemClock(), lambda: "me"), cloud=lambda project: self.cloud, channel=lambda folder, key: hosts
        )
        made = {"local": LocalPlace(root, SystemClock(), "me"), "tpu-vm": place}
        monkeypatch.setattr(context, "places", lambda: made)
        monkeypatch.setattr(vms, "cloud", lambda: self.cloud)
        monkeypatch.setattr(vms, "public_key", lambda: f"{context.owner()}:{hosts.key}")
        monkeypatch.setattr(vm_doctor, "shell", Shell)
        monkeypatch.setattr(machines, "POLL_SECONDS", 0.01)
        for name in ("sudo", "mountpoint"):  # of hosts, which are processes of this machine
            program = home / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text("#!/bin/sh\nexit 0\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")
        monkeypatch.chdir(folder)
        (folder / "job.yaml").write_text('name: train\ntpu: v4-8\ncommand: ["true"]\n')

    def forget(self) -> None:
        """As in a process of its own: another test of this one may have left a store open."""
        if context.store.cache_info().currsize:
            context.store().close()
        for cached in self._cached:
            cached.cache_clear()

    def __call__(self, line: str, code: int = 0) -> Result:
        words = spellings.canonical([MEANT.get(word, word) for word in line.split()])
        done = self._runner.invoke(cli.command, words, catch_exceptions=True, input="xibo2\ny\ny\n")
        exit_code = done.exception.exit_code if isinstance(done.exception, TpukitError) else done.exit_code
        assert exit_code == code, f"tpu {' '.join(words)}: {done.output} {done.exception!r}"
        return done

    def error(self, line: str, code: int = 1) -> str:
        return str(self(line, code=code).exception)

    def job(self, window: str) -> Any:
        return context.get(windows.get(context.store(), window).job)

    def end(self, state: State = State.COMPLETED) -> None:
        """All jobs that are active end, as if somebody had driven them."""
        for key in context.store().keys(JOBS):
            job = context.get(key)
            if not job.state.ended:
                change(context.store(), JOBS, key, lambda job: changed(job, state=state, ended=1.0))
                if lease := context.lease(key):
                    context.store().release(lease)
