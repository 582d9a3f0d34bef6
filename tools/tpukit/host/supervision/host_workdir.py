"""The workdir on a disk that outlives a job: a marker names the job that it belongs to.

A program that finds the checkpoints of another job continues them and trains nothing.
"""

from __future__ import annotations

import os
from contextlib import suppress

from .host_attempts import checkpoint_folder
from .host_files import listed, locked

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, BinaryIO

MARKER = (".tpukit", "job")


def claim(request: dict[str, Any], _: BinaryIO) -> dict[str, Any]:
    """Mark the workdir for the job, or return the job whose output it holds: "" if no marker names it.

    Idempotent. With `resume`, the workdir passes to this job. An unwritable folder stays without a marker.
    """
    workdir, job = os.path.expanduser(request["workdir"]), request["job"]
    file = os.path.join(workdir, *MARKER)
    with locked("workdir.lock"):
        owner = _owner(file)
        if owner != job and not request["resume"]:
            if owner and any(name != MARKER[0] for name in listed(workdir)):
                return {"holder": owner}
            if not owner and _has_checkpoints(workdir):
                return {"holder": ""}
        if owner != job:
            with suppress(OSError):
                os.makedirs(os.path.dirname(file), exist_ok=True)
                new = f"{file}.{os.getpid()}"
                with open(new, "w", encoding="utf-8") as content:
                    content.write(job)
                os.replace(new, file)
    return {"holder": None}


def _owner(file: str) -> str:
    try:
        with open(file, encoding="utf-8", errors="replace") as content:
            return content.read(1024).strip()
    except OSError:
        return ""


def _has_checkpoints(workdir: str) -> bool:
    import pathlib

    found: int = checkpoint_folder().newest(pathlib.Path(workdir), 0.0)
    return found >= 0
