"""Messages, hints and help texts name only commands and options that exist."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import chain
from pathlib import Path

import click

from support.modules import PRODUCT, TOOLS, name, packages
from tpukit import cli
from tpukit.cli import spellings

MODULES = [path for path in PRODUCT if path.relative_to(TOOLS).parts[1] != "host"]
TYPED = re.compile(r"`tpu ([^`]+)`")
OPTION = re.compile(r"(?<![\w-])--(?!config\b)[a-z][a-z0-9-]*\b(?!=\{)")
FOREIGN = re.compile(r"gcloud|kubectl|terraform|pip |docker|curl|systemctl|ssh|sudo|python|XLA_FLAGS|nohup|xla|libtpu")
"""A program whose options text may mention."""


@cache
def texts(path: Path) -> Sequence[str]:
    """Return the texts of a module as a person reads them, with each placeholder as a word."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    parts = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in ast.walk(node)}
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            found.append("".join(str(one.value) if isinstance(one, ast.Constant) else "WORD" for one in node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in parts:
            found.append(node.value)
    return found


def resolve(words: list[str]) -> tuple[click.Command, list[str]]:
    """Return the command that these words call, and its arguments."""
    found: click.Command = cli.command
    rest = spellings.canonical(words)
    while isinstance(found, click.Group) and rest and not rest[0].startswith("-"):
        if "WORD" in rest[0] or not re.fullmatch(r"[\w-]+", rest[0]):  # a placeholder, or a pattern
            return found, []
        inner = found.get_command(click.Context(found), rest[0])
        assert inner is not None, f"there is no command {rest[0]}"
        found, rest = inner, rest[1:]
    return found, rest


def options(command: click.Command) -> set[str]:
    own = {name for param in command.params for name in (*param.opts, *param.secondary_opts)}
    return own | {"--help", "-h"} | ({"--version"} if command is cli.command else set())


def every_command(group: click.Command = cli.command) -> Iterator[click.Command]:
    yield group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            inner = group.get_command(click.Context(group), name)
            assert inner is not None
            yield from every_command(inner)


@packages(MODULES)
def test_commands_in_messages_exist_and_have_the_options_that_are_named(modules: list[Path]) -> None:
    wrong = []
    for text in chain.from_iterable(map(texts, modules)):
        for typed in TYPED.findall(text):
            words = [word for word in typed.replace("[", "").replace("]", "").split() if word not in ("…", "...")]
            try:
                command, rest = resolve(words)
            except AssertionError as error:
                wrong.append(f"`tpu {typed}`: {error}")
                continue
            known = options(command)
            wrong += [
                f"`tpu {typed}`: no option {word}"
                for word in rest
                if word.startswith("--")
                and "WORD" not in word.partition("=")[0]
                and word.partition("=")[0] not in known
            ]
    assert wrong == []


@packages(path for path in MODULES if path.parent.name in ("cli", "sharing", "spec", "code_queue"))
def test_options_in_messages_of_commands_exist(modules: list[Path]) -> None:
    """Outside backticks, any command of `tpu` may have the option."""
    known = {name for command in every_command() for name in options(command)}
    wrong = [
        f"{name(path)}: {option}: {text[:80]}"
        for path in modules
        for text in texts(path)
        if not FOREIGN.search(text)
        for option in OPTION.findall(text)
        if option not in known and " " in text
    ]
    assert wrong == []


BANNED = re.compile(
    r"\b(?:nobody|somebody|whoever|anew|again and again|mend(?:s|ed|ing)?|unless told|if left out|could not be had"
    r"|such as (?:are|may)|taken back|for ever)\b",
    re.IGNORECASE,
)
FIRST = re.compile(r"(?:What|Of|That|Whether|So|Who|Whose|How|Where|Which|With the|And|But)\b")
"""First words that help texts avoid: a help text says what the command does or what the value is."""


def named_commands(group: click.Command = cli.command, words: str = "tpu") -> Iterator[tuple[str, click.Command]]:
    yield words, group
    if isinstance(group, click.Group):
        for name in group.list_commands(click.Context(group)):
            inner = group.get_command(click.Context(group), name)
            assert inner is not None
            yield from named_commands(inner, f"{words} {name}")


def help_texts() -> Iterator[tuple[str, str]]:
    for words, command in named_commands():
        yield words, (command.help or "").partition("\n\n\b")[0]
        for param in command.params:
            if isinstance(param, click.Option):
                yield f"{words} {param.opts[-1]}", param.help or ""
    for command, (_, text) in cli.COMMANDS.items():
        yield f"tpu --help {command}", text
    for one in spellings.SPELLINGS:
        yield f"tpu help {one.words}", one.says


def test_help_texts_say_what_a_command_does_and_what_a_value_is() -> None:
    wrong = [f"{where}: {text}" for where, text in help_texts() if FIRST.match(text) or BANNED.search(text)]
    assert wrong == [], "\n".join(wrong)
