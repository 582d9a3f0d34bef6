"""A log of the responses of the emulated Google APIs, which tests compare with Google's documents.

The environment names the file; without it, nothing is logged. Each line is one response. Many processes may write to
one file; a reader locks it to read and empty it.
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
"""Size at which the file stops growing."""


def variables() -> dict[str, str]:
    """Return the variables that another emulator needs to log its responses too."""
    return {name: value for name, value in os.environ.items() if name == VARIABLE}


def keep(method: str, path: str, answer: Mapping[str, Any]) -> None:
    if not (file := os.environ.get(VARIABLE)):
        return
    with Path(file).open("ab") as opened:
        fcntl.flock(opened, fcntl.LOCK_EX)
        if os.fstat(opened.fileno()).st_size < MOST_BYTES:
            opened.write(json.dumps({"method": method, "path": path, "answer": answer}).encode() + b"\n")
