"""Answers to the question that Ctrl-C prints."""

import pytest

from tpukit.cli.choices import chosen


@pytest.mark.parametrize(
    ("typed", "choice"),
    [
        ("s", "stop"),
        ("S", "stop"),
        (" stop ", "stop"),
        ("d", "detach"),
        ("detach", "detach"),
        ("g", "continue"),
        ("go on", "continue"),
        ("c", "continue"),
        ("Continue", "continue"),
        ("", "continue"),
        ("x", ""),
        ("stopp", ""),
    ],
)
def test_chosen_takes_each_word_of_the_question_and_its_first_letter(typed, choice):
    assert chosen(typed) == choice
