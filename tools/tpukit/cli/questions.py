"""Questions to a person at a terminal. Each accepts what it prints; without an answer it names the option to pass."""

from __future__ import annotations

import sys

import click

from tpukit.core.errors import Invalid, Problem

TYPE = "Type {} to do so"


def possible() -> bool:
    """Whether a person can answer: stdin is a terminal."""
    return sys.stdin.isatty()


def confirm(question: str, option: str = "--yes") -> bool:
    """Ask a question whose answer is yes or no, on stderr. The default is no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        raise _unanswered(question, option) from None


def require(question: str, option: str = "--yes") -> None:
    """Ask, and end the command unless the answer is yes."""
    if not confirm(question, option):
        raise click.Abort


def typed(question: str, name: str) -> bool:
    """Ask for a name to be typed, before what has that name is deleted for good."""
    return text(f"{question} {TYPE.format(name)}", "--name", default="").strip() == name


def text(label: str, option: str, default: str | None = None) -> str:
    """Ask for a text, on stderr. Without a default the question is repeated until there is one."""
    try:
        return str(click.prompt(label, default=default, show_default=False, err=True))
    except click.Abort:
        raise _unanswered(label, option) from None


def _unanswered(question: str, option: str) -> Exception:
    """Return what follows when the input has ended: at a terminal a person has left."""
    if possible():
        return click.Abort()
    return Invalid(Problem(option, f"{question}: no answer, as stdin is not a terminal", f"pass {option}"))
