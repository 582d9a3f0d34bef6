"""Tables of expected behaviours of the four tools.

Each row has a command that parses and tests that exist. One of them, or the test that types all lines of its table in
the sandbox, types the command.
"""

from __future__ import annotations

import ast
import importlib
import re
import shlex
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml

from support.manager_desk import MEANT
from support.page_commands import typists
from support.typed_commands import lines_of
from tpukit import cli
from tpukit.cli import spellings
from tpukit.host import worker as host_worker

TESTS = Path(__file__).resolve().parents[2]
TABLES = {path.stem: path for path in sorted((TESTS / "behaviours").glob("*.yaml"))}
FIELDS = {"behaviour", "command", "tests", "differs"}
LEAST = {"fleet": 42, "job_manager": 99, "provisioner": 21, "queue_service": 43}
"""Rows of each complete table: none may get lost."""
FILES = ("job.yaml", "fleet.yaml", "program.py", "extract.py", "requirements.txt", "data.jsonl")
"""Files in the folder where commands are typed."""

NOUNS = {"fleet", "queue", "provisioner", "cluster", "team", "image"}
TYPES_WHAT_INIT_PRINTS = {
    f"cluster/test_provisioner.py::test_provisioner_{name}"
    for name in (
        "image_is_built_and_pushed_by_the_line_that_init_prints",
        "needs_every_rule_of_its_cluster_role_and_no_other",
        "needs_every_permission_of_its_custom_role_and_no_other",
        "faults_of_gke_are_overcome",
    )
}
"""Tests whose commands are in no source: `tpu provisioner init` prints them, and the file's fixtures type them."""
INIT_PRINTS = ("kubectl apply", "tpu image push")

tables = pytest.mark.parametrize("table", TABLES)


@cache
def read(table: str) -> dict[str, Any]:
    return yaml.safe_load(TABLES[table].read_text())


def rows(table: str) -> list[dict[str, Any]]:
    return read(table)["behaviours"]


@cache
def defined(path: Path) -> frozenset[str]:
    """Return the tests of a file, including those of suites that it imports."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    own = {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}
    suites = [
        TESTS / f"{str(node.module).replace('.', '/')}.py"
        for node in tree.body
        if isinstance(node, ast.ImportFrom) and (node.module or "").endswith("_suite") and node.names[0].name == "*"
    ]
    return frozenset(own.union(*map(defined, suites)))


def exists(test: str) -> bool:
    path, _, name = test.partition("::")
    return (TESTS / path).is_file() and name in defined(TESTS / path)


def resolved(words: list[str]) -> tuple[list[click.Context], list[str]]:
    """Return the contexts of the groups that lead to a command, and the words from the command's name on."""
    rest, found = spellings.canonical(words), [click.Context(cli.command, info_name="tpu")]
    while True:
        group = found[-1].command
        assert isinstance(group, click.Group), rest
        inner = group.get_command(found[-1], rest[0])
        assert inner is not None, f"there is no command {rest[0]}"
        if not isinstance(inner, click.Group) or (len(rest) == 1 and inner.invoke_without_command):
            return found, rest
        found.append(click.Context(inner, parent=found[-1], info_name=rest[0], **inner.context_settings))
        rest = rest[1:]


def parse(command: str, folder: Path) -> None:
    program, *words = shlex.split(command)
    words = [MEANT.get(word, word) for word in words]
    if program == "tpu":
        parents, (name, *rest) = resolved(words)
        group = parents[-1].command
        assert isinstance(group, click.Group)
        leaf = group.get_command(parents[-1], name)
        assert leaf is not None
        required = [one.name for one in leaf.params if isinstance(one, click.Argument) and one.required]
        leaf.make_context(name, rest, parent=parents[-1], resilient_parsing=name == "add" and bool(required))
    elif words[:2] == ["-m", "tpukit.host.worker"]:
        host_worker._options([*words[2:], "--home", str(folder / "home")])
    else:
        assert program in ("kubectl", "gcloud"), f"{program} is no program of the sandbox's shell"


@cache
def shape(command: str) -> tuple[str, frozenset[str]]:
    """Return a command without its values: its name and its options."""
    program, *words = shlex.split(command)
    if program == "tpu":
        parents, rest = resolved(words)
        name = " ".join([*(one.info_name or "" for one in parents), rest[0]])
    else:
        name = " ".join([program, *[word for word in words if not word.startswith("-")][:1]])
    options = {word.partition("=")[0].replace("_", "-") for word in words if re.match(r"--?[a-z]", word)}
    return name, frozenset(options)


def types(test: str, command: str) -> bool:
    """Check that a test has a line with the word that names a command, and its options in that or other lines."""
    program, *words = shlex.split(command)
    # A helper of a test file may stand for `tpu fleet`; the next word names the command.
    named = words[1] if program == "tpu" and words[0] in NOUNS else words[0]
    lines = lines_of(test)
    given = {word.partition("=")[0].replace("_", "-") for line in lines for word in line}
    return shape(command)[1] <= given and any(named in line[:6] for line in lines)


@cache
def typed(table: str) -> tuple[str, ...]:
    """Return the lines of the test that types all commands of a table."""
    module = read(table)["typed_by"].partition("::")[0].removesuffix(".py").replace("/", ".")
    lines: Any = importlib.import_module("support.manager_desk" if table == "job_manager" else module).LINES
    texts = (line if isinstance(line, str) else line[0] for line in lines)
    return tuple(line for line in texts if not line.startswith("!"))  # a fault, not a command


def test_tables_are_complete() -> None:
    assert {table: len(rows(table)) for table in TABLES} == LEAST
    said = [row["behaviour"] for table in TABLES for row in rows(table)]
    assert len(said) == len(set(said))


@tables
def test_test_that_types_the_commands_of_a_table_exists(table: str) -> None:
    assert exists(read(table)["typed_by"])


@tables
def test_row_says_what_works_or_why_it_differs_and_its_tests_exist(table: str) -> None:
    for row in rows(table):
        assert set(row) <= FIELDS and {"behaviour", "command"} <= set(row), row
        assert row.get("differs", "a sentence.").strip().endswith("."), row
        assert row.get("tests"), f"no test shows it: {row}"
        assert [test for test in row["tests"] if not exists(test)] == [], row


@tables
def test_row_command_parses(table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in FILES:
        Path(name).touch()
    unread = []
    for command in [row["command"] for row in rows(table)]:
        try:
            parse(command, tmp_path)
        except (click.ClickException, SystemExit, AssertionError) as error:
            unread.append(f"{command}: {error}")
        files = [word for word in shlex.split(command) if word.startswith("examples/")]
        unread += [f"{command}: {file} does not exist" for file in files if not (TESTS.parent / file).exists()]
    assert unread == []


@tables
def test_command_of_a_row_is_typed_by_a_test_that_it_cites_or_by_that_of_its_table(table: str) -> None:
    assert [row for row in rows(table) if not is_typed(table, row)] == []


def is_typed(table: str, row: dict[str, Any]) -> bool:
    command = row["command"]
    name, options = shape(command)
    if command in typed(table) or any(name == other and options <= given for other, given in map(shape, typed(table))):
        return True
    if set(row["tests"]) & TYPES_WHAT_INIT_PRINTS and name.startswith(INIT_PRINTS):
        return True
    return bool(set(row["tests"]) & typists(command)) or any(types(test, command) for test in row["tests"])


@pytest.mark.parametrize(
    ("command", "typed"),
    [
        ("tpu find v34 -n", True),
        ("tpu find v34 --json --csv", False),
        ("tpu run v2-32-6 xibo", True),
        ("tpu fleet verify --gcs-bucket lines-one", False),
    ],
)
def test_commands_that_a_test_types_are_read_from_its_source(command: str, typed: bool) -> None:
    names = (
        "find_shows_tpus_of_types_and_generations_by_how_they_are_bought",
        "rule_of_a_job_is_the_one_that_was_given",
    )
    tests = [f"journeys/test_manager_documents.py::test_{name}" for name in names]
    assert any(types(test, command) for test in tests) == typed
