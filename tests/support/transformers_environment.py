"""A Python with transformers: its own environment in the cache folder, created once for each list of versions.

    python tests/support/transformers_environment.py

It takes 4.5 GB, two minutes of CPU, and the download of 2.5 GB. Most of it is CUDA, which PyTorch loads even without a
GPU.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
from pathlib import Path

PINS = Path(__file__).with_name("transformers.txt")


class NotThere(Exception):
    pass


def python(*, build: bool = False) -> str:
    """Return the path of its interpreter."""
    key = hashlib.sha256(PINS.read_bytes() + sys.version.encode()).hexdigest()[:16]
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    folder = Path(root) / "tpukit" / "transformers" / key
    interpreter, ready = folder / "bin" / "python", folder / ".ready"
    if ready.exists():
        return str(interpreter)
    if not build:
        raise NotThere(f"transformers is not installed: {sys.executable} {Path(__file__).resolve()} does it (4.5 GB)")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with (folder.parent / f"{key}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # two checkouts may create it at the same time
        if not ready.exists():
            print("installing transformers and PyTorch (minutes, once)", flush=True)
            subprocess.run([sys.executable, "-m", "venv", "--clear", str(folder)], check=True)
            pip = [str(interpreter), "-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--no-cache-dir"]
            subprocess.run([*pip, "--no-deps", "--requirement", str(PINS)], check=True)
            ready.touch()
    return str(interpreter)


if __name__ == "__main__":
    print(python(build=True))
