"""The state of a sandbox in which JobSet and Kueue were installed a moment ago, kept beside the programs of its build.
A new sandbox that is to have them begins with it, instead of having the API server take in their definitions again.

Kept are the folder of etcd and the authority that the webhooks in it trust. What a sandbox makes for itself, every
other key and certificate among it, is not in there.
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
"""Of the sandbox that is there while one is made."""
PARTS = ("etcd", "certificates/webhooks")
_LAYOUT = 2  # of what is kept: a change of the API server's flags that it would notice is another one


def ensure(
    programs: Binaries,
    installed: Mapping[str, Sequence[Any]],
    made: Callable[[], AbstractContextManager[Path]],
    report: Report,
) -> Path:
    """The snapshot with these documents installed. `made`: the folder of a sandbox that has them and was stopped."""
    content = json.dumps([_LAYOUT, programs.folder.name, installed], sort_keys=True)
    kept = programs.folder.parent / f"{programs.folder.name}-{hashlib.sha256(content.encode()).hexdigest()[:16]}"
    if not kept.is_dir():
        with binaries.alone(kept, "snapshot", report):
            if not kept.is_dir():
                with made() as path:
                    _keep(path, kept)
    return kept


def lay(kept: Path, path: Path) -> None:
    """Into the folder of a sandbox that is new."""
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
