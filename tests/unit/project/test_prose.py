"""Docstrings and comments of the product follow tools/voice.md."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.modules import ROOT, name, packages

MODULES = [path for folder in ("tools", "tests/support", "tests/simulation") for path in (ROOT / folder).rglob("*.py")]
BANNED = re.compile(
    r"\b(?:nobody|somebody|whoever|anew|for ever|again and again|mend(?:s|ed|ing)?|unless told|could not be had"
    r"|on purpose|it is said|was told|is told)\b",
    re.IGNORECASE,
)
FIRST = re.compile(r"(?:What|Of|That|Whether|So|Who|Whose|Whom|How|This)\b")


def prose(source: str) -> Iterator[tuple[int, str]]:
    """Yield the line and text of each docstring, each note below an attribute, and each comment."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            yield node.lineno, node.value.value.strip()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def faults(source: str) -> list[str]:
    return [f"{line}: {text[:80]}" for line, text in prose(source) if BANNED.search(text) or FIRST.match(text)]


@packages(MODULES)
def test_docstrings_and_comments_use_plain_english(modules: list[Path]) -> None:
    assert [(name(path), fault) for path in modules for fault in faults(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize("text", ['"""What it does."""', 'x = 1\n"""Of whom it is."""', "# made anew for somebody"])
def test_prose_in_the_old_dialect_is_found(text: str) -> None:
    assert faults(text)
