"""Modules by package, for tests that read source. One test a package collects faster than one a module."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import groupby
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools"
PRODUCT = sorted((TOOLS / "tpukit").rglob("*.py"))


def packages(modules: Iterable[Path]) -> pytest.MarkDecorator:
    """Parametrize a test over `modules` by package: the first two folders below tools or tests."""
    groups = groupby(sorted(modules, key=_package), _package)
    by_name = {"/".join(name): list(members) for name, members in groups}
    return pytest.mark.parametrize("modules", by_name.values(), ids=by_name)


def name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def _package(path: Path) -> tuple[str, ...]:
    return path.parts[len(ROOT.parts) : -1][:3]
