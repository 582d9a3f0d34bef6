"""Commands on pages, as readers type them."""

from __future__ import annotations

import re
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any

import yaml
from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT = Path(__file__).resolve().parents[2]
PAGES = sorted(
    path for path in ROOT.rglob("*.md") if not any(part.startswith(".") for part in path.relative_to(ROOT).parts)
)


@cache
def tokens(page: Path) -> list[Token]:
    return MarkdownIt("commonmark").enable("table").parse(page.read_text(encoding="utf-8"))


def commands(page: str, heading: str = "") -> list[str]:
    """Return the commands of a page, or of one of its sections: continued lines are one, comments are left out."""
    found = [block for language in ("console", "sh", "bash") for block in blocks(page, language, heading)]
    return [line for block in found for line in _joined(block)]


def blocks(page: str, language: str, heading: str = "") -> list[str]:
    """Return the blocks of a page, or of one of its sections, in a language."""
    found, inside = [], not heading
    parsed = tokens(ROOT / page)
    for before, token in zip([None, *parsed], parsed, strict=False):
        if heading and before is not None and before.type == "heading_open":
            inside = token.content == heading
        if inside and token.type == "fence" and token.info.strip() == language:
            found.append(token.content)
    return found


def _joined(block: str) -> list[str]:
    """Return the commands of a block; a loop is one command."""
    lines = re.sub(r"\\\n\s*", "", block).splitlines()
    made: list[str] = []
    for line in lines:
        text = re.sub(r"\s+#.*$", "", line).rstrip()
        if made and made[-1].startswith("for ") and not made[-1].endswith("done"):
            made[-1] += f"; {text.strip()}" if not made[-1].endswith("do") else f" {text.strip()}"
        elif text:
            made.append(text)
    return made


@cache
def all_commands() -> dict[str, list[str]]:
    """Return the commands by page, without pages that have none."""
    every = {str(page.relative_to(ROOT)): commands(str(page.relative_to(ROOT))) for page in PAGES}
    return {page: found for page, found in every.items() if found}


@cache
def typed_by() -> dict[str, dict[str, dict[str, Any]]]:
    """Return the entries by page and pattern."""
    return yaml.safe_load((ROOT / "tests" / "page_commands.yaml").read_text())


def entry(page: str, line: str) -> tuple[str, dict[str, Any]]:
    """Return the first entry that matches a command of a page; brackets in a line are literal."""
    for pattern, found in typed_by().get(page, {}).items():
        if fnmatchcase(line.replace("[", "("), pattern.replace("[", "(")):
            return pattern, found
    raise AssertionError(f"{page}: no test types `{line}`; see tests/page_commands.yaml")


def typists(command: str) -> set[str]:
    """Return the tests that type a command that pages print."""
    pages = [page for page, lines in all_commands().items() if command in lines]
    return {str(entry(page, command)[1].get("test")) for page in pages}
