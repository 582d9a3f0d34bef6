"""Errors, hints and help texts are plain technical English: they name who does what."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tpukit import cli

SOURCE = Path(cli.__file__).parents[1]
MODULES = sorted(path for path in SOURCE.rglob("*.py") if "google" not in path.relative_to(SOURCE).parts)
SPEAKERS = {
    *("Invalid", "NotFound", "Conflict", "Denied", "Transient", "NotYet", "Problem", "NoCapacity", "TpukitError"),
    *("Unauthenticated", "HostKeyChanged", "Disagreement", "UsageError", "BadParameter", "ClickException"),
    *("echo", "say", "_say", "confirm", "prompt", "complain", "refuse"),
}
"""Calls whose texts a person reads."""
NAMES = {"hint", "words", "why", "question"}
BANNED = re.compile(
    r"\b(?:nobody|somebody|whoever|anew|again and again|mend(?:s|ed|ing)?|unless told|for ever"
    r"|(?:could|may|can) ?not be had|on purpose|ended well|any more|made again|not say whose|short for nothing)\b"
    r"|\bbegun otherwise|(?<!there )(?<!There )\b(?:is|are) no (?!longer\b|such\b)[a-zA-Z]+",
    re.IGNORECASE,
)


def text_of(node: ast.AST) -> str:
    if isinstance(node, ast.JoinedStr):
        return "".join(part.value if isinstance(part, ast.Constant) else "WORD" for part in node.values)
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def messages(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        values: list[ast.expr] = []
        if isinstance(node, ast.Call):
            function = node.func
            name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
            spoken = [one.value for one in node.keywords if name in SPEAKERS or one.arg in ("hint", "help")]
            values = [*(node.args if name in SPEAKERS else ()), *spoken]
        elif isinstance(node, ast.Assign) and any(getattr(one, "id", "") in NAMES for one in node.targets):
            values = [node.value]
        for value in values:
            parts = {id(part) for one in ast.walk(value) if isinstance(one, ast.JoinedStr) for part in one.values}
            yield from (text_of(one) for one in ast.walk(value) if id(one) not in parts and text_of(one))


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(SOURCE)))
def test_messages_use_the_words_of_the_field(path: Path) -> None:
    assert [text for text in messages(path) if BANNED.search(text)] == []
