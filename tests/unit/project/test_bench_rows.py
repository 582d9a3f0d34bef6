"""Bars in the table of `make bench`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


@pytest.fixture
def rows(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).resolve().parents[2] / "bench"))
    for name in ("rows", "measure"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    import rows

    yield rows
    for name in ("rows", "measure"):
        sys.modules.pop(name, None)


def test_table_says_met_or_missed_only_where_there_is_a_bar(rows):
    found = [
        rows.below("idle", 1.0, " %", 2.0),
        rows.below("idle", 3.0, " %", 2.0),
        rows.counted("memory", 1.5, " GiB").beside("1.2 GiB"),
    ]
    _, met, missed, without = rows.table(found).splitlines()
    assert met.endswith("< 2 %  met")
    assert missed.endswith("< 2 %  MISSED")
    assert without.split() == ["memory", "1.5", "GiB", "1.2", "GiB", "1.5", "GiB", "–"]
