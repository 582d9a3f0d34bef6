"""The question that Ctrl-C asks about a followed job, with background work until it is answered."""

from __future__ import annotations

import os
import select
import sys
from collections.abc import Callable

import click

QUESTION = "Stop the job, detach from it, or go on? (s/d/g) [g]: "
HINT = "type s, d or g"
_WORDS = {"stop": "stop", "detach": "detach", "go on": "continue", "continue": "continue"}
_PIECE = 4096


def chosen(typed: str) -> str:
    """Return stop, detach or continue for a word of the question or its first letter, or "" for any other text."""
    word = typed.strip().lower()
    if not word:
        return "continue"
    return next((choice for name, choice in _WORDS.items() if word in (name, name[0])), "")


def ask(work: Callable[[], bool], seconds: float) -> str:
    """Ask at the terminal, and return stop, detach or continue.

    Until a line is typed, `work` runs every `seconds`. When it returns False, the question is moot.
    """
    click.echo(f"\n{QUESTION}", nl=False, err=True)
    typed = b""
    while True:
        if not select.select([sys.stdin], [], [], seconds)[0]:
            if not work():
                click.echo("", err=True)
                return "continue"
            continue
        read = os.read(sys.stdin.fileno(), _PIECE)
        if not read:  # the terminal was closed
            return "detach"
        typed += read
        while b"\n" in typed:
            line, _, typed = typed.partition(b"\n")
            if choice := chosen(line.decode(errors="replace")):
                return choice
            click.echo(f"{HINT}: {QUESTION}", nl=False, err=True)
