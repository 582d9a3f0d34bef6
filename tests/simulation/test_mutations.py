"""Tests that the product contains every fix that a mutation removes, and is valid Python without it."""

from __future__ import annotations

import pytest

from simulation import mutation_table
from simulation.cases import CASES
from simulation.mutations import PRODUCT, TESTS, edits, every


def test_page_has_a_row_for_each_mutation_and_the_tests_of_the_rows_exist():
    page = mutation_table.PAGE.read_text(encoding="utf-8")
    assert mutation_table.table(every(), mutation_table.results(page)) in page
    assert {case for one in every() for case in one.cases.split()} == CASES.keys()
    assert all((TESTS / case.test).is_file() for case in CASES.values())


@pytest.mark.parametrize("mutation", every(), ids=lambda one: one.name)
def test_mutation_finds_its_fix_and_leaves_python(mutation):
    for name, fixed, broken in edits(mutation):
        text = (PRODUCT / name).read_text(encoding="utf-8")
        assert fixed in text
        compile(text.replace(fixed, broken), name, "exec")
