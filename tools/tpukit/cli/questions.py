"""Questions to a person at a terminal."""

from __future__ import annotations

import sys

import click


def possible() -> bool:
    """Whether a person can answer: stdin is a terminal."""
    return sys.stdin.isatty()


def confirm(question: str) -> bool:
    """Ask a question whose answer is yes or no, on stderr. The default is no."""
    return click.confirm(question, err=True)
