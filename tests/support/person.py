"""A user of a sandbox's cluster through `tpu`."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from support.box import ROOT, TEAM, V4_16, until


class Person:
    """A user with their own home who works with the sandbox's cluster."""

    def __init__(self, home: Path, kubeconfig: Path) -> None:
        self.home = home
        home.mkdir()
        settings = {"team": TEAM, "artifacts": "gs://my-runs"}
        (home / "settings.yaml").write_text(yaml.safe_dump(settings))
        self.env = {
            **os.environ,
            "TPUKIT_HOME": str(home),
            "TPUKIT_SETTINGS": str(home / "settings.yaml"),
            "KUBECONFIG": str(kubeconfig),
            "PYTHONPATH": str(ROOT / "tools"),
        }

    def settle(self, **settings: str) -> None:
        file = self.home / "settings.yaml"
        file.write_text(yaml.safe_dump({**yaml.safe_load(file.read_text()), **settings}))

    def job(self, name: str, *command: str, **fields: Any) -> Path:
        spec = {"name": name, "tpu": V4_16.name, "slices": 2, "command": list(command), "image": "image:1"}
        file = self.home / f"{name}.yaml"
        file.write_text(yaml.safe_dump({**spec, "capacity": "spot", "max": {"grace": "5s"}, **fields}))
        return file

    def start(self, *words: str | Path) -> subprocess.Popen[str]:
        argv = [sys.executable, "-m", "tpukit", *map(str, words)]
        with (self.home / "tpu.log").open("a") as log:
            return subprocess.Popen(argv, env=self.env, stdout=log, stderr=log, text=True)

    def tpu(self, *words: str | Path, fails: bool = False) -> subprocess.CompletedProcess[str]:
        argv = [sys.executable, "-m", "tpukit", *map(str, words)]
        done = subprocess.run(argv, env=self.env, capture_output=True, text=True)
        assert bool(done.returncode) == fails, f"`tpu {' '.join(map(str, words))}`: {done.stdout}{done.stderr}"
        return done

    def show(self, job: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.tpu("job", "show", job, "--json").stdout)
        return found

    def reasons(self, job: str) -> list[str]:
        return [attempt["reason"] for attempt in self.show(job)["attempts"]]

    def state(self, job: str, wanted: str) -> dict[str, Any]:
        """Return the job once it is in that state."""

        def there() -> dict[str, Any] | None:
            listed = json.loads(self.tpu("job", "list", "--json").stdout)
            if not any(one["id"].startswith(job) for one in listed):
                return None
            found = self.show(job)
            return found if found["state"] == wanted else None

        found: dict[str, Any] = until(there, f"{job} to be {wanted}", every=0.5)
        return found
