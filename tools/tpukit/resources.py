"""Where the files that are not Python live: inside the wheel, or in the checkout when installed editable."""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).resolve().parent


def folder(name: str) -> Path:
    """The folder `jobset`, `kueue`, `terraform` or `sandbox` that came with this tpukit."""
    packaged = _PACKAGE / "_data" / name
    if packaged.is_dir():
        return packaged
    at_the_top = _PACKAGE.parents[1] / name
    return at_the_top if at_the_top.is_dir() else _PACKAGE.parent / name
