"""Scripts on a disk that is too small for them."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import tpukit
from support.waiting import PATIENCE

TOOLS = Path(tpukit.__file__).parents[1]
MOUNT = 'mount -t tmpfs -o size="$1"k tmpfs "$2" && shift 2 && exec "$@"'


def on_small_disk(folder: Path, kib: int, script: str) -> dict[str, Any]:
    """Return the JSON output of `script`, whose first argument is a folder on a disk of this many KiB.

    The disk is mounted in a namespace of the script, so it disappears afterwards. If the machine does not permit
    mounts, files are limited to half that size instead; `full` in the result is true for a real disk.
    """
    folder.mkdir(parents=True, exist_ok=True)
    python = [sys.executable, "-c", script, str(folder)]
    private = _private_mounts()
    if private:
        argv = [*private, "sh", "-c", MOUNT, "sh", str(kib), str(folder), *python]
    else:
        argv = ["sh", "-c", f'ulimit -f {kib} && exec "$@"', "sh", *python]  # in blocks of 512 bytes
    environment = {"PATH": os.environ["PATH"], "PYTHONPATH": str(TOOLS)}
    done = subprocess.run(argv, capture_output=True, text=True, timeout=PATIENCE, env=environment)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout) | {"full": bool(private)}


@functools.cache
def _private_mounts() -> list[str]:
    """Return a command prefix for private mounts: as root, or as the root of a user namespace."""
    probe = ["sh", "-c", MOUNT, "sh", "64", "/mnt", "true"]
    for argv in (["unshare", "--mount"], ["unshare", "--map-root-user", "--mount"]):
        try:
            if subprocess.run([*argv, *probe], capture_output=True, timeout=PATIENCE).returncode == 0:
                return argv
        except OSError:
            continue
    return []
