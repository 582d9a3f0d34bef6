"""What a command loads before it does anything: people wait for it each time."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

CLIENTS = {"asyncssh", "google", "grpc", "jax", "kubernetes", "numpy", "orbax", "starlette", "textual", "uvicorn"}
OURS = {"jinja2", "pathspec", "pydantic", "rich", "sqlite3", "yaml"}
JOB = "name: a\ntpu: v4-32\nslices: 2\ncommand: [python, train.py]\nimage: repository/train:1\nworkdir: gs://bucket/a\n"


def loaded(folder: Path, *arguments: str) -> set[str]:
    """Top-level packages that a `tpu` command imports."""
    (folder / "job.yaml").write_text(JOB, encoding="utf-8")
    argv = [sys.executable, "-X", "importtime", "-m", "tpukit", *arguments]
    done = subprocess.run(argv, cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    return set(re.findall(r"^import time:[^|]*\|[^|]*\| *(\w+)", done.stderr, re.MULTILINE))


@pytest.mark.parametrize(
    "arguments", [["--help"], ["--version"], ["run", "--help"], ["job", "--help"], ["serve", "-h"]]
)
def test_help_loads_click_and_nothing_heavier(arguments: list[str], tmp_path: Path) -> None:
    found = loaded(tmp_path, *arguments)
    assert "click" in found
    assert found & (CLIENTS | OURS) == set()


@pytest.mark.parametrize("arguments", [["job", "render", "job.yaml"], ["job", "schema"], ["catalogue", "--json"]])
def test_offline_commands_load_no_client_and_no_store(arguments: list[str], tmp_path: Path) -> None:
    assert loaded(tmp_path, *arguments) & (CLIENTS | {"rich", "sqlite3"}) == set()
