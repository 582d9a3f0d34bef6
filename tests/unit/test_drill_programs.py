"""The programs with planted mistakes: each has a row in the table, and differs from the right one by one class."""

from __future__ import annotations

import ast
from pathlib import Path

from fixtures.drill_programs.table import MISTAKES, RIGHT

FOLDER = Path(__file__).parents[1] / "fixtures" / "drill_programs"


def test_table_has_a_row_for_every_program():
    rows = [one.program for one in (RIGHT, *MISTAKES)]
    assert sorted(rows) == sorted(path.stem for path in FOLDER.glob("*.py") if path.stem != "table")
    assert len(MISTAKES) >= 12


def test_each_mistake_is_one_class_over_the_right_program():
    for one in MISTAKES:
        tree = ast.parse((FOLDER / f"{one.program}.py").read_text(encoding="utf-8"))
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        assert [[ast.unparse(base) for base in node.bases] for node in classes] == [["Program"]]
        assert ast.get_docstring(tree)
