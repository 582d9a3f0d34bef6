"""Every command of every page parses, and is typed by a test or has a reason why not."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from support.page_commands import PAGES, ROOT, all_commands, entry, tokens, typed_by
from unit.cli.test_messages import options, resolve
from unit.project.test_behaviours import TESTS, defined, exists

NOT_RUN = 18
"""Entries that no test types. A new one needs a reason that outweighs the test."""


def commands() -> list[tuple[str, str]]:
    return [(page, line) for page, lines in all_commands().items() for line in lines]


def test_command_of_a_page_is_typed_by_a_test_or_says_why_not() -> None:
    for page, line in commands():
        _, found = entry(page, line)
        assert set(found) in ({"test"}, {"not_run"}), f"{page}: {line}"
        if test := found.get("test"):
            path, _, name = test.partition("::")
            assert exists(test) or (name == "*" and defined(TESTS / path)), f"{page}: {line}: {test}"


def test_entries_are_all_of_commands_that_pages_have() -> None:
    used = {(page, entry(page, line)[0]) for page, line in commands()}
    assert {(page, pattern) for page, found in typed_by().items() for pattern in found} == used


def test_commands_that_no_test_types_do_not_become_more() -> None:
    assert sum("not_run" in found for each in typed_by().values() for found in each.values()) <= NOT_RUN


def test_make_lists_every_target_that_pages_name() -> None:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("MAKE", "MFLAGS"))}
    done = subprocess.run(["make"], cwd=ROOT, env=env, capture_output=True, text=True, check=True)
    listed = set(re.findall(r"^make (\S+)", done.stdout, re.MULTILINE))
    named = {word for _, line in commands() if line.startswith("make ") for word in line.split()[1:] if "=" not in word}
    assert named <= listed


def inline(page: Path) -> list[str]:
    """Return the `tpu ...` commands within sentences."""
    codes = [one.content for token in tokens(page) for one in token.children or () if one.type == "code_inline"]
    return [code for code in codes if re.match(r"tpu [a-z-]", code)]


@pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))
def test_commands_within_sentences_exist_and_have_their_options(page: Path) -> None:
    if page.name == "CHANGELOG.md" or page.parent.name == "decisions":
        return  # these describe earlier versions
    wrong = []
    for code in inline(page):
        words = [word for word in shlex.split(code)[1:] if word not in ("…", "...")]
        try:
            command, rest = resolve([word for word in words if word != "--"])
        except AssertionError as error:
            wrong.append(f"`{code}`: {error}")
            continue
        given = [word.partition("=")[0] for word in rest if word.startswith("--")]
        if "shell" not in words:
            wrong += [f"`{code}`: no option {word}" for word in given if word not in options(command)]
    assert wrong == []
