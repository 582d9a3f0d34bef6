"""Test cases that need their own process: a process with JAX in it warns of every fork of later tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path


def passes(cases: Path, seconds: float) -> None:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", str(cases)]
    ran = subprocess.run(argv, capture_output=True, text=True, timeout=seconds, check=False)
    assert ran.returncode == 0, ran.stdout[-8000:] + ran.stderr[-2000:]
