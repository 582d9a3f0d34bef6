"""A user who types `tpu` commands of the job manager, on a simulated cloud of TPU VMs."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from msgspec.structs import replace as changed

from support.simulated_tpu_cloud import Hosts, TpuCloud
from tpukit import cli
from tpukit.cli import context, spellings, vm_doctor, vms
from tpukit.core.clock import SystemClock
from tpukit.core.errors import TpukitError
from tpukit.jobs.reasons import State
from tpukit.jobs.records import JOBS
from tpukit.kernel.store import change
from tpukit.places.local.place import LocalPlace
from tpukit.places.tpu_vm import TpuVmPlace
from tpukit.sharing import inventory, shared_vms, users, windows
from tpukit.sharing.doctor import Done

LINES = [
    line["typed"]
    for line in json.loads((Path(__file__).parents[1] / "fixtures" / "job-manager-commands.json").read_text())
]
"""All short command lines."""
MEANT = {
    **{"username": "xibo", "USER": "xibo", "alias": "mine", "FULL_TPU_NAME": "g-v4-8-9", "tpu_name": "g-v4-8-1"},
    **{"your_alias": "own", "alias_name": "own", "FULL_NAME": "config.x.y", "full_name": "config.x.y"},
    **{"key": "monitor_length", "value": "500", "num": "2", "command": "kill"},
}
"""Values for the placeholders in command lines."""


class Cloud(TpuCloud):
    def stop(self, zone: str, name: str, expected: str) -> None:
        self.made[name] = replace(self.made[name], state="STOPPED")

    def start(self, zone: str, name: str, expected: str) -> None:
        self.made[name] = replace(self.made[name], state="READY")


class Shell:
    """Hosts on which every check passes."""

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


class Typing:
    """Commands in this process, with their own home and code folder."""

    def __init__(self, home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch, project: str) -> None:
        self._runner = CliRunner()
        settings = folder / "settings.yaml"
        settings.write_text(f"project: {project}\nzone: us-central2-b\n")
        for name, value in {"TPUKIT_HOME": str(home), "TPUKIT_SETTINGS": str(settings), "TPUKIT_USER": "xibo"}.items():
            monkeypatch.setenv(name, value)
        monkeypatch.delenv("TPUKIT_STORE", raising=False)
        self._cached = (context.store, context.places, vms.settings, vms.cloud)
        self.forget()
        monkeypatch.chdir(folder)
        (folder / "job.yaml").write_text('name: train\ntpu: v4-8\ncommand: ["true"]\n')

    def forget(self) -> None:
        """Clear cached objects as in a new process: an earlier test of this process may have left a store open."""
        if context.store.cache_info().currsize:
            context.store().close()
        for cached in self._cached:
            cached.cache_clear()

    def __call__(self, line: str, code: int = 0, answers: str = "xibo2\ny\ny\n") -> Result:
        words = spellings.canonical([MEANT.get(word, word) for word in line.split()])
        done = self._runner.invoke(cli.command, words, catch_exceptions=True, input=answers)
        exit_code = done.exception.exit_code if isinstance(done.exception, TpukitError) else done.exit_code
        assert exit_code == code, f"tpu {' '.join(words)}: {done.output} {done.exception!r}"
        return done

    def error(self, line: str, code: int = 1) -> str:
        return str(self(line, code=code).exception)

    def job(self, window: str) -> Any:
        return context.get(windows.get(context.store(), window).job)

    def end(self, state: State = State.COMPLETED) -> None:
        """End all active jobs, as a driver would."""
        for key in context.store().keys(JOBS):
            job = context.get(key)
            if not job.state.ended:
                change(context.store(), JOBS, key, lambda job: changed(job, state=state, ended=1.0))
                if lease := context.session().lease(key):
                    context.store().release(lease)


class Desk(Typing):
    """A user on a cloud that is simulated in this process."""

    def __init__(self, home: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(home, folder, monkeypatch, "my-project-1")
        self.cloud = Cloud(home / "hosts")
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
        monkeypatch.setattr(shared_vms, "POLL_SECONDS", 0.01)
        for name in ("sudo", "mountpoint"):  # of hosts, which are processes of this machine
            program = home / "bin" / name
            program.parent.mkdir(exist_ok=True)
            program.write_text("#!/bin/sh\nexit 0\n")
            program.chmod(0o755)
        monkeypatch.setenv("PATH", f"{home / 'bin'}{os.pathsep}{os.environ['PATH']}")


def set_up(desk: Typing) -> None:
    for name in ("xibo", "lyy"):
        desk(f"add-user {name}")
        desk(f"set-cur 1 {name}")
        desk(f"set-cur 2 {name}")
        desk(f"set-settings monitor_after_run False {name}")
    for short in ("v2-32-6", "v2-32-7", "v2-32-2", "v2-32-p1", "v2-32-p2", "v4-32-py2", "kmh-tpuvm-v2-32-1"):
        desk(f"-ta {short} g-v4-8-1")
    desk("apply g-v4-8-1")
    inventory.set_disk(context.store(), "g-v4-8-1", "10.0.0.2:/share", "/mnt/share", 1.0)


def type_every_line(desk: Typing) -> None:
    """Type every command line, each with the state that it needs."""
    set_up(desk)
    for line in LINES:
        typed = line.removeprefix("tpu ")
        numbers = [word.rpartition("=")[2].rpartition(":")[2] for word in typed.split()]
        if windowed := [number for number in numbers if number in ("3", "101")]:
            if f"xibo:{windowed[0]}" not in context.store().keys(windows.WINDOWS):
                users.set_last_window(context.store(), "xibo", int(windowed[0]) - 1, 1.0)
                desk("run v2-32-6 xibo -q")
            if not typed.startswith(("kill", "-k")):
                desk.end()
        if typed.startswith(("del-dir", "swap-dir")):
            desk("set-cur 2 xibo")
        desk(typed)
        if typed.startswith(("run", "release", "reapply", "restart")):
            desk.end()
        if typed.startswith(("kill", "-k")):
            assert desk.job("xibo:101").state is State.CANCELLED
            desk("clear xibo")
