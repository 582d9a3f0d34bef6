"""Code checks the capabilities of a place; only the place itself uses its name."""

from __future__ import annotations

import re
from pathlib import Path

import tpukit

PACKAGE = Path(tpukit.__file__).parent
COMPARED = re.compile(r"""\bplaces?(\.name)?\s*(==|!=|in|not in)\s*[(\[{]?\s*["']""")
NAMED = re.compile(r"""["'](gke|tpu-vm)["']""")


def test_no_module_outside_places_asks_for_a_place_by_its_name():
    asking = [
        f"{path.relative_to(PACKAGE)}:{number}: {line.strip()}"
        for path in sorted(PACKAGE.rglob("*.py"))
        if path.relative_to(PACKAGE).parts[0] != "places"
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if COMPARED.search(line) or (NAMED.search(line) and "install_hint(" not in line)  # optional parts have names
    ]
    assert not asking


def test_patterns_find_what_they_are_for():
    for line in ('if plan.place == "gke":', 'elif place != "local":', 'return place in ("gke",)', 'places["gke"]'):
        assert COMPARED.search(line) or NAMED.search(line)
