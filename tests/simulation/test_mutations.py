"""Tests that the product contains every fix that a mutation removes, and is valid Python without it."""

from __future__ import annotations

import pytest

from simulation.mutations import PRODUCT, edits, every


@pytest.mark.parametrize("mutation", every(), ids=lambda one: one.name)
def test_mutation_finds_its_fix_and_leaves_python(mutation):
    for name, fixed, broken in edits(mutation):
        text = (PRODUCT / name).read_text(encoding="utf-8")
        assert fixed in text
        compile(text.replace(fixed, broken), name, "exec")
