"""Hints that can be typed as printed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tpukit.cluster.hints import Completion
from tpukit.core.errors import Conflict, Invalid, Problem

MINE = Completion(["mine.yaml", "--set", "labels={a: b}"], Path("/data/my cluster"), "tofu")


@pytest.mark.parametrize(
    ("short", "typed"),
    [
        ("`tpu cluster apply` again", "`tpu cluster apply mine.yaml --set 'labels={a: b}'` again"),
        (
            "then `tpu cluster apply --set force_destroy=true` first",
            "then `tpu cluster apply mine.yaml --set 'labels={a: b}' --set force_destroy=true` first",
        ),
        ("`terraform untaint ADDRESS`", "`tofu -chdir='/data/my cluster' untaint ADDRESS`"),
        ("`terraform force-unlock ID` with the ID", "`tofu -chdir='/data/my cluster' force-unlock ID` with the ID"),
        ("`tofu -chdir=/x force-unlock 1`", "`tofu -chdir=/x force-unlock 1`"),
        ("install Terraform 1.5.7", "install Terraform 1.5.7"),
        ("another `tpu cluster` works on it", "another `tpu cluster` works on it"),
        ("`tpu team add x`", "`tpu team add x`"),
    ],
)
def test_completion_makes_command_lines_of_a_text_complete(short, typed):
    assert MINE.text(short) == typed


def test_completion_keeps_the_class_of_an_error_and_completes_message_and_hint():
    found = MINE.error(Conflict("`terraform import` it", hint="`tpu cluster plan`"))
    assert type(found) is Conflict
    assert found.message == "`tofu -chdir='/data/my cluster' import` it"
    assert found.hint == "`tpu cluster plan mine.yaml --set 'labels={a: b}'`"


def test_completion_of_problems_keeps_where_they_are():
    (problem,) = MINE.error(Invalid(Problem("a.yaml:3", "wrong", "`tpu cluster plan`"))).problems
    assert (problem.where, problem.hint) == ("a.yaml:3", "`tpu cluster plan mine.yaml --set 'labels={a: b}'`")


def test_completion_of_nothing_changes_nothing():
    assert Completion().text("`tpu cluster apply` and `terraform untaint A`") == (
        "`tpu cluster apply` and `terraform untaint A`"
    )
