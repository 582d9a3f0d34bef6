"""Where the files that are not Python live: inside the wheel, or at the top of the checkout when installed editable."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder `jobset`, `kueue` or `terraform` that came with this tpukit."""
    packaged = _PACKAGE / "_data" / name
    if packaged.is_dir():
        return packaged
    return _PACKAGE.parents[1] / name
