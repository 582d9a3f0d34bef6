"""Questions to people: each accepts the answers that it prints, and names an option for use without a terminal."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from tpukit import cli
from tpukit.cli import choices, questions
from unit.cli.test_messages import options

SOURCE = Path(cli.__file__).parents[1]
ASKING = {"confirm", "prompt", "input", "getchar", "raw_input", "getpass"}
ASKERS = {"cli/questions.py", "cli/choices.py", "cli/monitor_app.py"}
"""Modules that read answers; the last one is an application with tests of its own for its keys."""


def calls(path: Path, names: set[str], of: str = "") -> list[ast.Call]:
    found = [node for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))) if isinstance(node, ast.Call)]
    made = []
    for call in found:
        function = call.func
        whose = getattr(function.value, "id", "") if isinstance(function, ast.Attribute) else ""
        name = function.attr if isinstance(function, ast.Attribute) else getattr(function, "id", "")
        if name in names and (not of or whose == of):
            made.append(call)
    return made


def test_answers_are_read_in_one_place_only() -> None:
    reading = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if calls(path, ASKING - {"input"}, "click") or [one for one in calls(path, {"input"}) if not one.keywords]
    }
    assert reading <= ASKERS


def printed(text: str) -> list[str]:
    """Return the answers that a question lists in brackets."""
    found = re.search(r"[\[(]([a-zA-Z](?:/[a-zA-Z])+)[\])]", text)
    assert found, text
    return found[1].split("/")


def ask(*asked: object, typed: str) -> tuple[object, str]:
    """Return the answer of a question function to typed input, and the printed text."""
    answers: list[object] = []

    @click.command()
    def command() -> None:
        function, *words = asked
        assert callable(function)
        answers.append(function(*words))

    done = CliRunner().invoke(command, input=typed)
    return (answers or [done.exception])[0], done.output


def test_confirm_accepts_each_answer_that_it_prints_in_both_cases() -> None:
    _, said = ask(questions.confirm, "Delete it?", typed="n\n")
    answers = printed(said)
    assert {one.lower() for one in answers} == {"y", "n"}
    for one in {form for answer in answers for form in (answer, answer.lower(), answer.upper())}:
        answer, said = ask(questions.confirm, "Delete it?", typed=f"{one}\n")
        assert (answer, "invalid" in said) == (one.lower() == "y", False)
    default = next(one for one in answers if one.isupper())
    assert ask(questions.confirm, "Delete it?", typed="\n")[0] == (default == "Y")


def test_question_for_a_name_accepts_the_name_that_it_prints_and_no_other() -> None:
    said = ask(questions.typed, "Everything goes.", "tpu-cluster", typed="x\n")[1]
    name = re.search(questions.TYPE.format(r"(\S+)"), said)
    assert name
    assert ask(questions.typed, "Everything goes.", "tpu-cluster", typed=f"{name[1]}\n")[0] is True
    assert ask(questions.typed, "Everything goes.", "tpu-cluster", typed="tpu\n")[0] is False
    assert ask(questions.typed, "Everything goes.", "tpu-cluster", typed="\n")[0] is False


def test_question_after_ctrl_c_accepts_each_word_and_letter_that_it_and_its_hint_print() -> None:
    letters = printed(choices.QUESTION)
    meant = [choices.chosen(letter) for letter in letters]
    assert meant == ["stop", "detach", "continue"]
    assert [choices.chosen(letter) for letter in re.findall(r"\b[a-z]\b", choices.HINT)] == meant
    words = choices.QUESTION.partition("?")[0].lower()
    named = [word for word in choices._WORDS if word in words]
    assert [choices.chosen(word) for word in named] == meant
    assert choices.chosen(re.findall(r"\[(\w)\]", choices.QUESTION)[-1]) == choices.chosen("")


@pytest.mark.parametrize("function", [questions.confirm, questions.require, questions.typed, questions.text])
def test_question_without_a_terminal_and_without_an_answer_names_an_option(function: object) -> None:
    error, said = ask(function, "Delete it?", "--yes", typed="")
    option = "--name" if function is questions.typed else "--yes"
    assert option in str(error) and "Delete it?" in str(error), said


def leaves(command: click.Command) -> list[click.Command]:
    if not isinstance(command, click.Group):
        return [command]
    context = click.Context(command)
    found = [command.get_command(context, name) for name in command.list_commands(context)]
    return [leaf for one in found if one for leaf in leaves(one)]


def test_options_that_questions_name_exist() -> None:
    known = {option for leaf in leaves(cli.command) for option in options(leaf)} | {"NAME"}
    named = {"--yes", "--name"}
    for path in (SOURCE / "cli").glob("*.py"):
        for call in calls(path, {"confirm", "require", "text", "typed"}, "questions"):
            named |= {str(one.value) for one in call.args[1:] if isinstance(one, ast.Constant)}
    assert named - known == set()


@pytest.mark.parametrize("line", ["user add"])
def test_command_that_asks_is_misuse_where_nothing_answers(line: str, tmp_path: Path) -> None:
    env = {"TPUKIT_HOME": str(tmp_path), "PYTHONPATH": str(SOURCE.parent), "PATH": "/usr/bin:/bin"}
    argv = [sys.executable, "-m", "tpukit", *line.split()]
    done = subprocess.run(argv, env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False)
    assert "NAME" in done.stderr and "not a terminal" in done.stderr
