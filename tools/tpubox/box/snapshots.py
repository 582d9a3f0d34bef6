"""Snapshots of a sandbox right after the installation of JobSet and Kueue, kept beside the programs of its build.

A new sandbox with add-ons starts from a snapshot, which saves the API server the processing of their definitions. A
snapshot holds the folder of etcd and the authority that its webhooks trust. Everything that a sandbox makes for itself,
including all other keys and certificates, is left out.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from tpubox.box import binaries
from tpubox.box.binaries import Binaries, Report

NAME = "snapshot"
"""Name of the sandbox that exists while a snapshot is made."""
PARTS = ("etcd", "certificates/webhooks")
_LAYOUT = 2  # version of the content: increment when flags of the API server change what it stores


def ensure(
    programs: Binaries,
    installed: Mapping[str, Sequence[Any]],
    made: Callable[[], AbstractContextManager[Path]],
    report: Report,
) -> Path:
    """Return the snapshot with these documents installed.

    `made` yields the folder of a stopped sandbox that has them.
    """
    content = json.dumps([_LAYOUT, programs.folder.name, installed], sort_keys=True)
    kept = programs.folder.parent / f"{programs.folder.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if not kept.is_dir():
        with binaries.alone(kept, "snapshot", report):
            if not kept.is_dir():
                with made() as path:
                    _keep(path, kept)
    return kept


def lay(kept: Path, path: Path) -> None:
    """Copy the snapshot into the folder of a new sandbox."""
    for part in PARTS:
        shutil.rmtree(path / part, ignore_errors=True)
        (path / part).parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        shutil.copytree(kept / part, path / part)


def _keep(path: Path, kept: Path) -> None:
    with tempfile.TemporaryDirectory(dir=kept.parent, prefix=f"{kept.name}.") as scratch:
        made = Path(scratch) / "made"
        made.mkdir(mode=0o700)
        lay(path, made)
        made.rename(kept)
