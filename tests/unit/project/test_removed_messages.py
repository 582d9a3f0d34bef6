"""Sentences that people did not understand are in no message or help text."""

from __future__ import annotations

import re

import pytest

from support.modules import TOOLS

SOURCES = {path: path.read_text(encoding="utf-8") for path in TOOLS.glob("tpu*/**/*.py")}


@pytest.mark.parametrize(
    "words",
    [
        r"name it, or write it into the settings",
        r"TPU VMs need one\b",
        r"it left no exit code",
        r"killed with its terminal or session\?",
        r"there is no job :",
        r"is short for nothing",
        r"was begun otherwise",
        r"\{\w+\}: \{\w+\} has no worker",
        r"And threads, of",
        r"Of faults that have a chance",
        r"Whose; \$TPUKIT_USER",
    ],
)
def test_sentence_that_was_not_understood_is_in_no_source(words):
    assert len(SOURCES) > 100
    assert [str(path.relative_to(TOOLS)) for path, text in SOURCES.items() if re.search(words, text)] == []
