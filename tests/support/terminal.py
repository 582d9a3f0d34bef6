"""A user at a terminal: a command runs in a pseudo-terminal, and its questions are answered as they come."""

from __future__ import annotations

import codecs
import os
import pty
import re
import select
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from support.waiting import PATIENCE

_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]|\r")
_UNFINISHED = re.compile(r"\x1b(\[[0-9;?]*)?\Z")


@dataclass(frozen=True)
class Typed:
    code: int
    text: str  # the terminal's output, without control sequences


def run(
    argv: Sequence[str],
    env: Mapping[str, str],
    cwd: Path,
    *,
    answers: Mapping[str, str] | None = None,
    until: Callable[[str], bool] = lambda text: False,
    seconds: float = 1800.0,
) -> Typed:
    """Run a command and type `answers`, by regular expression of the question, each once; kill it if `until` holds."""
    mine, theirs = pty.openpty()
    try:
        process = subprocess.Popen(
            argv, stdin=theirs, stdout=theirs, stderr=theirs, env=dict(env), cwd=cwd, start_new_session=True
        )
    finally:
        os.close(theirs)
    waiting, text, due = dict(answers or {}), "", time.monotonic() + seconds
    decoder, begun = codecs.getincrementaldecoder("utf-8")("replace"), ""
    with os.fdopen(mine, "r+b", buffering=0) as terminal:
        try:
            while True:
                if not select.select([terminal], [], [], 1.0)[0]:
                    assert time.monotonic() < due, f"{argv} goes on after {seconds} s:\n{text[-5000:]}"
                    continue
                try:
                    read = begun + decoder.decode(terminal.read(65536))
                except OSError:  # the command has closed its side
                    break
                # A read may end within a character or an escape sequence; the next one completes it.
                begun = found[0] if (found := _UNFINISHED.search(read)) else ""
                text += _ESCAPES.sub("", read.removesuffix(begun))
                if until(text):
                    process.kill()
                    break
                for question in [one for one in waiting if re.search(one, text)]:
                    terminal.write(f"{waiting.pop(question)}\n".encode())
        finally:
            if process.poll() is None and time.monotonic() >= due:
                process.kill()
        code = process.wait(timeout=PATIENCE)
    return Typed(code, text)
