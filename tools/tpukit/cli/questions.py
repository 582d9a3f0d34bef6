"""Questions to the user at a terminal. Each states the expected answer; without one, the error names the option."""

from __future__ import annotations

import sys

import click

from tpukit.core.errors import Invalid, Problem

TYPE = "Type {} to do so"


def possible() -> bool:
    """Return True if stdin is a terminal, so that a user can answer."""
    return sys.stdin.isatty()


def confirm(question: str, option: str = "--yes") -> bool:
    """Ask a yes-or-no question on stderr. The default is no."""
    try:
        return click.confirm(question, err=True)
    except click.Abort:
        raise _unanswered(question, option) from None


def require(question: str, option: str = "--yes") -> None:
    """Ask, and end the command unless the answer is yes."""
    if not confirm(question, option):
        raise click.Abort


def typed(question: str, name: str) -> bool:
    """Ask the user to type a name before the object of that name is deleted for good."""
    return text(f"{question} {TYPE.format(name)}", "--name", default="").strip() == name


def text(label: str, option: str, default: str | None = None) -> str:
    """Ask for a text on stderr. Without a default, repeat the question until it is answered."""
    try:
        return str(click.prompt(label, default=default, show_default=False, err=True))
    except click.Abort:
        raise _unanswered(label, option) from None


def _unanswered(question: str, option: str) -> Exception:
    """Return the exception for input that has ended: Abort at a terminal, else Invalid."""
    if possible():
        return click.Abort()
    return Invalid(Problem(option, f"{question}: no answer, as stdin is not a terminal", f"pass {option}"))
