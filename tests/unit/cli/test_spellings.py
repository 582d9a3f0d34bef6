"""Short spellings and their canonical commands."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest
from hypothesis import given
from hypothesis import strategies as some

from tpukit import cli
from tpukit.cli import spellings

LINES = json.loads(Path(__file__).parents[2].joinpath("fixtures/job-manager-commands.json").read_text())
WORD = some.text("abc123=-.:/", min_size=1, max_size=8)


@pytest.mark.parametrize("line", LINES, ids=lambda line: line["typed"])
def test_short_spelling_becomes_a_canonical_command_that_exists(line):
    words = spellings.canonical(line["typed"].split()[1:])
    assert " ".join(words) == line["becomes"]
    assert spellings.canonical(words) == words
    assert _exists(words), f"there is no `tpu {' '.join(words)}`"


def _exists(words):
    command, context = cli.command, click.Context(cli.command)
    for word in words:
        if not isinstance(command, click.Group):
            return True
        command = command.get_command(context, word)
        if command is None:
            return False
    return not isinstance(command, click.Group)


@given(some.sampled_from(sorted(set(cli.COMMANDS) - {"run", "clean"})), some.lists(WORD, max_size=5))
def test_canonical_command_passes_unchanged(first, rest):
    assert spellings.canonical([first, *rest]) == [first, *rest]


@given(some.sampled_from(sorted(spellings.BY_WORD)), some.lists(WORD, max_size=6))
def test_whatever_a_spelling_becomes_is_canonical(first, rest):
    once = spellings.canonical([first, *rest])
    assert spellings.canonical(once) == once


@pytest.mark.parametrize(
    "typed",
    [
        "run job.yaml",
        "run job.yaml --set lr=0.1 --tag x --detach",
        "run ./v4-8 --place local",
        "run --dry-run job.yaml",
        "clean",
        "clean --older-than 3d --json",
        "-h",
        "--version",
        "run --help",
    ],
)
def test_canonical_run_clean_and_options_pass_unchanged(typed):
    assert spellings.canonical(typed.split()) == typed.split()


@pytest.mark.parametrize(
    ("typed", "becomes"),
    [
        ("kill xibo 101", "job stop xibo:101"),  # the number is the window, in any position
        ("kill 101", "job stop :101"),
        ("kill", "job stop"),
        ("run v4-32 lr=1", "job start v4-32 --set=lr=1"),
        ("run mine -q", "job start mine --no-monitor"),
        ("kill 1 xibo extra", "job stop xibo:1 extra"),
        ("clean -re xibo", "job clear --parents --user=xibo"),
        ("-h kill", "help kill"),
        ("monitor --help", "job monitor --help"),
    ],
)
def test_words_in_other_orders_and_numbers_are_taken_as_meant(typed, becomes):
    assert " ".join(spellings.canonical(typed.split())) == becomes


def test_no_spelling_hides_a_canonical_command_but_run_and_clean():
    assert set(spellings.BY_WORD) & set(cli.COMMANDS) == {"run", "clean"}


def test_run_with_several_job_files_is_the_command_that_sends_them():
    words = ["run", "a.yaml", "b.yaml", "--detach"]
    assert spellings.canonical(words) == words
