"""Keeps what the emulators of Google's APIs answer, where the environment names a file for it: tests hold it against
Google's documents.

A line is one answer. Many processes may write to one file; whoever locks it may read and empty it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

VARIABLE = "TPUKIT_KEPT_ANSWERS"
MOST_BYTES = 1 << 28
"""A file of this size grows no more."""


def variables() -> dict[str, str]:
    """What the environment of another emulator needs, so that it keeps its answers too."""
    return {name: value for name, value in os.environ.items() if name == VARIABLE}


def keep(method: str, path: str, answer: Mapping[str, Any]) -> None:
    if not (file := os.environ.get(VARIABLE)):
        return
    with Path(file).open("ab") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        if os.fstat(opened.fileno()).st_size < MOST_BYTES:
            opened.write(json.dumps({"method": method, "path": path, "answer": answer}).encode() + b"\n")
