"""Programs of others: found, shown as a command line, run. Arguments are lists, and no shell ever reads them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from tpukit.errors import NotFound, TpukitError

_LEAVE = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_TAIL = 200  # lines of stderr that are kept
_SECRETS = re.compile(
    r"ya29\.[-\w.]+"  # access tokens of Google
    r"|(?<=[Bb]earer )\S+"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)"
    r"|(?<=\"private_key\": \")[^\"]+",
    re.S,
)


@dataclass(frozen=True, slots=True)
class Command:
    """A command line as it is run."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    presses: int = 0  # of Ctrl-C, or of what means the same
    errors: str = ""  # the end of what it wrote to stderr
    output: str = field(default="", repr=False)


class Cancelled(TpukitError):
    """A person told it to leave, and it did."""

    exit_code = 130


def command(*argv: str) -> Command:
    return Command(argv)


def redact(text: str) -> str:
    """Text of a program without what opens doors."""
    return _SECRETS.sub("[removed]", text)


def need(program: str, hint: str) -> str:
    """The full path of a program."""
    path = shutil.which(program)
    if path is None:
        raise NotFound(f"{program} is not on PATH", hint=hint)
    return path


def run(command: Command, *, given: str = "") -> Outcome:
    """Run to the end and keep what it prints."""
    done = subprocess.run(command.argv, input=given, capture_output=True, text=True, errors="replace", check=False)
    return Outcome(done.returncode, errors=redact(done.stderr), output=done.stdout)


def stream(
    command: Command,
    on_line: Callable[[str], None],
    *,
    on_note: Callable[[str], None] = lambda line: None,
    on_leave: Callable[[int], None] = lambda presses: None,
    env: Mapping[str, str] | None = None,
) -> Outcome:
    """Run and hand over each line as it comes; `on_note` gets those of stderr, in another thread.

    It runs in a process group of its own, so that the terminal's Ctrl-C reaches us alone. We send it one SIGINT, for
    which Terraform finishes what is under way and saves its state, and wait. The second Ctrl-C kills it and all it
    started.
    """
    process = subprocess.Popen(
        command.argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        env={**os.environ, **(env or {})},
        process_group=0,
    )
    assert process.stdout is not None
    tail: deque[str] = deque(maxlen=_TAIL)
    reader = threading.Thread(target=_notes, args=(process, tail, on_note), daemon=True)
    reader.start()
    try:
        with _leaving(process, on_leave) as presses:
            for line in process.stdout:
                on_line(redact(line.rstrip("\n")))
            process.wait()
            reader.join()
    finally:
        if process.poll() is None:
            _kill(process)
        process.stdout.close()
    return Outcome(process.returncode, len(presses), "".join(tail))


def _notes(process: subprocess.Popen[str], tail: deque[str], on_note: Callable[[str], None]) -> None:
    assert process.stderr is not None
    with process.stderr:
        for line in process.stderr:
            tail.append(redact(line))
            on_note(redact(line.rstrip("\n")))


@contextmanager
def _leaving(process: subprocess.Popen[str], on_leave: Callable[[int], None]) -> Iterator[list[int]]:
    """Ctrl-C, SIGTERM and a lost terminal all mean: leave, cleanly the first time."""
    presses: list[int] = []

    def leave(number: int, frame: object) -> None:
        presses.append(number)
        if len(presses) == 1:
            process.send_signal(signal.SIGINT)
        else:
            _kill(process)
        on_leave(len(presses))

    if threading.current_thread() is not threading.main_thread():
        yield presses  # signals belong to the main thread
        return
    before = {number: signal.signal(number, leave) for number in _LEAVE}
    try:
        yield presses
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
