"""Programs with deliberate mistakes: each has a row in the table, and each row has a program."""

from __future__ import annotations

import ast
import re

from support.drill_corpus import PROGRAMS, table
from tpukit.drill.advice import Cause
from tpukit.drill.verdicts import Word

ROWS = table()
SOCKETS = [one for one in ROWS if one.kind == "sockets"]
OTHERS = [one for one in ROWS if one.kind != "sockets"]


def test_table_has_enough_programs_of_every_kind_and_right_ones_among_them():
    assert len(ROWS) >= 45
    for kind in ("sockets", "host library", "numpy alone", "shell", "orbax alone", "jax.distributed"):
        assert any(one.kind == kind and one.is_right for one in ROWS), kind
        assert any(one.kind == kind and not one.is_right for one in ROWS), kind
    assert len({one.name for one in ROWS}) == len(ROWS)


def test_table_names_verdicts_and_causes_of_the_drill_and_every_cause_has_a_program():
    assert {word for one in ROWS for word in one.verdicts} <= set(Word)
    assert {cause for one in ROWS for cause in one.causes} == set(Cause)


def test_socket_programs_each_file_has_a_row_and_is_one_class_over_the_right_one():
    for one in SOCKETS:
        tree = ast.parse((PROGRAMS / f"{one.name}.py").read_text(encoding="utf-8"))
        assert ast.get_docstring(tree)
        classes = [node for node in tree.body if isinstance(node, ast.ClassDef)]
        bases = [[ast.unparse(base) for base in node.bases] for node in classes]
        assert one.name == "right" or bases == [["Program"]], one.name
    others = {str(word) for one in OTHERS for word in one.job["command"]}
    files = {path.name for path in PROGRAMS.iterdir() if path.suffix in (".py", ".sh")} - others
    assert {f"{one.name}.py" for one in SOCKETS} == files


def test_mistakes_of_a_program_are_the_rows_of_its_kind():
    planted = re.compile(r'MISTAKE"? [!=]?= "([^"]+)"|^"([^"]+)"\) ', re.MULTILINE)
    for name in {str(one.job["command"][-1]) for one in OTHERS}:
        found = {a or b for a, b in planted.findall((PROGRAMS / name).read_text(encoding="utf-8"))}
        assert found == {one.mistake for one in OTHERS if one.job["command"][-1] == name} - {""}, name
