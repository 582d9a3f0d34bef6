"""A bare machine with the supervisor installed, and the requests of tests to it."""

from __future__ import annotations

import base64
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from support.waiting import PATIENCE, until
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase, PodState
from tpukit.places.tpu_vm.channel import programs


class Host:
    """A bare machine that the program was sent to."""

    def __init__(self, root: Path, **environment: str) -> None:
        self.root = root
        self.environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(root),
            "SSH_CLIENT": "127.0.0.1 1 22",
            "GCE_METADATA_HOST": "127.0.0.1:1",  # no server there
            **environment,
        }
        self.install()

    @property
    def argv(self) -> list[str]:
        return [sys.executable, "-I", "-S", str(self.root / "programs" / "one" / "supervisor.py")]

    def install(self) -> None:
        """Send the program, as a driver does for a host without it."""
        folder = self.root / "programs" / "one"
        for name, text in programs().items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(text)

    def open(self, request: dict[str, Any], content: bytes = b"") -> subprocess.Popen[bytes]:
        with tempfile.TemporaryFile() as asked:
            asked.write(json.dumps(request).encode() + b"\n" + content)
            asked.seek(0)
            return subprocess.Popen(
                self.argv, stdin=asked, stdout=subprocess.PIPE, env=self.environment, start_new_session=True
            )

    def ask(self, do: str, content: bytes = b"", **request: Any) -> Any:
        process = self.open({"do": do, **request}, content)
        text, _ = process.communicate(timeout=PATIENCE)
        assert process.returncode == 0
        return json.loads(text)

    def start(self, script: str, job: str = "try-1", attempt: int = 0, **more: Any) -> Any:
        return self.ask("start", **self.request(script, job, attempt), **more)

    def request(self, script: str, job: str = "try-1", attempt: int = 0) -> dict[str, Any]:
        return {
            "job": job,
            "attempt": attempt,
            "store": "mine",
            "argv": ["sh", "-c", script],
            "env": {"NAME": "value"},
            "workdir": str(self.root / "work"),
        }

    def folder(self, job: str = "try-1", attempt: int = 0) -> Path:
        return self.root / "jobs" / job / f"attempt-{attempt}"

    def leaves(self, job: str = "try-1", attempt: int = 0) -> bool:
        """Return whether the host received SIGTERM, without a request to it."""
        return (self.folder(job, attempt) / "stop").exists()

    def facts(self, job: str = "try-1", attempt: int = 0, log: int | None = 0) -> Any:
        return self.ask("status", attempts=[{"job": job, "attempt": attempt, "log": log}])["attempts"][0]

    def state(self, job: str = "try-1", attempt: int = 0) -> PodState:
        return state_of(self.facts(job, attempt))

    def ended(self, job: str = "try-1", attempt: int = 0) -> PodState:
        def over() -> PodState | None:
            state = self.state(job, attempt)
            return state if state.phase in (Phase.ENDED, Phase.LOST) else None

        return until(over, f"{job} to end")

    def log(self, job: str = "try-1", attempt: int = 0) -> str:
        return base64.b64decode(self.facts(job, attempt)["log"]["bytes"]).decode()


def state_of(facts: Any) -> PodState:
    return pods.state_of(facts["began"], facts["end"], locked=facts["locked"], stopping=facts["stop"])
