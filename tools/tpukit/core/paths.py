"""Folders of tpukit on this machine: the XDG folders, or subfolders of $TPUKIT_HOME."""

from __future__ import annotations

import os
import secrets
from contextlib import suppress
from pathlib import Path

from tpukit.core.errors import Denied


def state() -> Path:
    """Return the folder for the store and its locks."""
    return _folder("state", "XDG_STATE_HOME", ".local/state")


def data() -> Path:
    """Return the folder for runs, staged code and TensorBoard data."""
    return _folder("data", "XDG_DATA_HOME", ".local/share")


def cache() -> Path:
    """Return the folder for files that can be recreated; deleting it costs only time."""
    return _folder("cache", "XDG_CACHE_HOME", ".cache")


def mark(file: Path) -> str:
    """Return the random text in `file`, which identifies this folder elsewhere; create it on first use."""
    if not file.exists():
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = file.with_name(f"{file.name}.{secrets.token_hex(4)}")
        new.write_text(secrets.token_hex(8), encoding="ascii")
        with suppress(FileExistsError):  # another process was faster
            file.hardlink_to(new)
        new.unlink()
    return file.read_text(encoding="ascii")


def _folder(kind: str, variable: str, default: str) -> Path:
    own = os.environ.get("TPUKIT_HOME")
    folder = Path(own).absolute() / kind if own else Path(os.environ.get(variable) or Path.home() / default) / "tpukit"
    try:
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        hint = "point $TPUKIT_HOME at a folder that you may write to"
        raise Denied(f"the folder {folder} cannot be created: {error.strerror}", hint=hint) from error
    return folder
