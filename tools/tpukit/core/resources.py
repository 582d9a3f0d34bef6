"""Locations of the files that are not Python: inside the wheel, or in the checkout of an editable install."""

from __future__ import annotations

import json
from pathlib import Path

_PACKAGE = Path(__file__).resolve().parents[1]


def folder(name: str) -> Path:
    """Return the path of `jobset`, `kueue`, `terraform` or `sandbox` that came with this tpukit."""
    packaged = _PACKAGE / "_data" / name
    if packaged.is_dir():
        return packaged
    at_the_top = _PACKAGE.parents[1] / name
    return at_the_top if at_the_top.is_dir() else _PACKAGE.parent / name


def install_hint(extra: str) -> str:
    """Return the command that installs an optional part of tpukit from the source of this installation."""
    checkout = _PACKAGE.parents[1]
    if (checkout / "pyproject.toml").is_file():
        return f"run `pip install --editable '{checkout}[{extra}]'`"
    try:
        return f"run `pip install 'tpukit[{extra}] @ {json.loads(_origin())['url']}'`"
    except (ValueError, KeyError):
        return f"run `pip install 'WHEEL[{extra}]'` with the wheel or checkout of tpukit"


def _origin() -> str:
    """Return the record that pip keeps of the source of tpukit.

    https://packaging.python.org/en/latest/specifications/direct-url/
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        return distribution("tpukit").read_text("direct_url.json") or ""
    except PackageNotFoundError:
        return ""
