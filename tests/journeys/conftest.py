"""The real `tpu` command in a separate process with a separate home."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import tpukit
from journeys import cluster_machine, forked_commands
from support.manager_desk import Desk
from support.waiting import PATIENCE, until
from tpukit.places.local import processes as pods

FIRST = ("test_pretrain_resume", "test_pretrain_parts")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run tests that train a model first, so that no worker is left alone with one at the end.

    A worker that has all of a file trains once for it.
    """
    items.sort(key=lambda item: item.path.stem not in FIRST)


def _heed_signals() -> None:
    """Restore the default signal handlers.

    Tests started with `&` or nohup would pass ignored signals to their children.
    """
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


Process = subprocess.Popen[str] | forked_commands.Forked


class Tpu:
    """A runner of the command. It passes only PATH from the caller's environment."""

    def __init__(self, home: Path, folder: Path) -> None:
        self.home, self.folder = home, folder
        self.forks = True
        """Fork commands from a process that has loaded the program; if False, start Python for each, as users do."""
        self.env = {
            "PATH": os.environ["PATH"],
            "PYTHONFAULTHANDLER": "1",
            "HOME": str(folder),
            "PYTHONPATH": str(Path(tpukit.__file__).parents[1]),
            "TPUKIT_HOME": str(home),
            "TPUKIT_SETTINGS": str(folder / "no-settings.yaml"),
        }
        self._started: list[Process] = []

    def __call__(self, *arguments: str | Path, code: int | None = 0) -> subprocess.CompletedProcess[str]:
        """Run a command to its end and check the exit code."""
        if self.forks:
            done = forked_commands.server().run([*map(str, arguments)], self.env, self.folder, PATIENCE)
        else:
            done = subprocess.run(
                self.argv(*arguments), capture_output=True, text=True, timeout=PATIENCE, env=self.env, cwd=self.folder
            )
        assert code is None or done.returncode == code, f"exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr, done.stderr
        return done

    def start(self, *arguments: str | Path, **options: Any) -> Process:
        """Start a command in its own session, as a terminal would."""
        process: Process
        with (self.folder / f"tpu-{len(self._started)}.log").open("w+", encoding="utf-8") as log:
            if self.forks and not options:
                words = [*map(str, arguments)]
                process = forked_commands.server().start(words, self.env, self.folder, log, log, session=True)
            else:
                process = subprocess.Popen(
                    self.argv(*arguments),
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    stdin=subprocess.DEVNULL,
                    text=True,
                    env=self.env,
                    cwd=self.folder,
                    **{"start_new_session": True, "preexec_fn": _heed_signals, **options},
                )
        self._started.append(process)
        return process

    def said(self, process: Process) -> str:
        """Return the output of a started command so far."""
        return (self.folder / f"tpu-{self._started.index(process)}.log").read_text(encoding="utf-8")

    def argv(self, *arguments: str | Path) -> list[str]:
        return [sys.executable, "-m", "tpukit", *map(str, arguments)]

    def file(self, *command: str, name: str = "train", tpu: str = "v4-8", **fields: Any) -> Path:
        """Write a job file. JSON is YAML."""
        path = self.folder / f"{name}.yaml"
        path.write_text(json.dumps({"name": name, "tpu": tpu, "command": list(command), **fields}), encoding="utf-8")
        return path

    def show(self, job: str) -> dict[str, Any]:
        return json.loads(self("job", "show", job, "--json").stdout)

    def jobs(self) -> list[dict[str, Any]]:
        return json.loads(self("job", "list", "--json").stdout)

    def workdir(self, job_id: str) -> Path:
        return self.home / "data" / "runs" / job_id / "work"

    def the_job(self) -> str:
        """Return the id of the only job as soon as its hosts run."""
        return until(lambda: [path.parents[2].name for path in self.home.glob("data/runs/*/attempt-*/*/began")])[0]

    def pid(self, job_id: str, host: str = "0-0", attempt: int = 0, *, of: str = "pid") -> int:
        """Return the process id of a host, or of the shim above it."""
        began = self.home / "data" / "runs" / job_id / f"attempt-{attempt}" / f"{job_id}-slice-{host}" / "began"
        until(began.exists, f"{began} to appear")
        return json.loads(began.read_text(encoding="utf-8"))[of]

    def kill_all(self) -> None:
        for process in self._started:
            with suppress(ProcessLookupError):
                process.kill()
            process.wait()


@pytest.fixture
def tpu(home: Path, tmp_path: Path) -> Iterator[Tpu]:
    command = Tpu(home, tmp_path)
    yield command
    command.kill_all()


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> cluster_machine.Machine:
    return cluster_machine.make(tmp_path, monkeypatch)


@pytest.fixture
def desk(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    folder = tmp_path / "code"
    folder.mkdir()
    heard = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGHUP, signal.SIGTERM)}
    made = Desk(home, folder, monkeypatch)
    yield made
    for number, handler in heard.items():
        signal.signal(number, handler)
    made.forget()
    pods.kill_strays(home)
    for attempt in (home / "hosts").glob("*/jobs/*/attempt-*"):
        pods.lose(attempt)
