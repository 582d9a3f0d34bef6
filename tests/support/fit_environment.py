"""The environment of `tpu fit`, and a Python with the libraries of the trainers in tests/fixtures/fit.

    python tests/support/fit_environment.py

It takes 1.4 GB in the cache folder, a minute of CPU, and the download of 500 MB.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tpukit.core import paths
from tpukit.fit import environment

PINS = Path(__file__).with_name("fit.txt")


def trainers(*, build: bool = False) -> str:
    """Return the interpreter with the trainers' libraries."""
    key = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    folder = paths.cache() / "fit" / f"trainers-{key}"
    interpreter = folder / "bin" / "python"
    if interpreter.exists():
        return str(interpreter)
    assert build, f"the trainers' libraries are not installed: {sys.executable} {Path(__file__).resolve()} does it"
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not interpreter.exists():
            draft = folder.with_name(f"trainers-{os.getpid()}")
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(draft)], check=True)
            pip = [str(draft / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
            subprocess.run([*pip, "--no-deps", "--requirement", str(PINS)], check=True)
            shutil.rmtree(folder, ignore_errors=True)
            draft.rename(folder)
    return str(interpreter)


if __name__ == "__main__":
    environment.make(lambda text: print(text, flush=True))
    print(trainers(build=True))
