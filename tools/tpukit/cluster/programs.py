"""External programs: find, show and run them. Arguments are lists, and no shell interprets them."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from tpukit.core.errors import NotFound, TpukitError, Transient

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
    """A command line, exactly as it is run."""

    argv: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(self.argv)


@dataclass(frozen=True, slots=True)
class Outcome:
    code: int
    presses: int = 0  # of Ctrl-C, or of an equivalent signal
    errors: str = ""  # the end of its stderr
    output: str = field(default="", repr=False)


class Cancelled(TpukitError):
    """An interruption by the user, after which the program exited."""

    exit_code = 130


def command(*argv: str) -> Command:
    return Command(argv)


def redact(text: str) -> str:
    """Return a program's text without credentials."""
    return _SECRETS.sub("[removed]", text)


def need(program: str, hint: str) -> str:
    """Return the full path of a program."""
    path = shutil.which(program)
    if path is None:
        raise NotFound(f"{program} is not on PATH", hint=hint)
    return path


def run(command: Command, *, given: str = "", limit: float | None = None) -> Outcome:
    """Run to the end and keep the output. Raise Transient if that takes longer than `limit` seconds.

    The command gets its own process group, since gcloud is a script around the program that does the work.
    """
    with subprocess.Popen(
        command.argv,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        process_group=0,
    ) as process:
        try:
            output, errors = process.communicate(given, timeout=limit)
        except subprocess.TimeoutExpired as error:
            _kill(process)
            words = " ".join(word for word in command.argv[:5] if not word.startswith("-"))
            raise Transient(
                f"`{words}` did not end within {limit:.0f} s", hint="run the same command again to continue"
            ) from error
        except BaseException:  # Ctrl-C reaches this process only
            _kill(process)
            raise
    return Outcome(process.returncode, errors=redact(errors), output=output)


def side_by_side(works: Sequence[Callable[[], None]], *, at_once: int = 4) -> None:
    """Call all works in threads. The first error is raised once those under way are done; the rest never start."""
    from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait

    with ThreadPoolExecutor(min(at_once, max(len(works), 1))) as pool:
        futures = [pool.submit(work) for work in works]
        try:
            wait(futures, return_when=FIRST_EXCEPTION)
        finally:
            for future in futures:
                future.cancel()
    for future in futures:
        if not future.cancelled():
            future.result()


def stream(
    command: Command,
    on_line: Callable[[str], None],
    *,
    on_note: Callable[[str], None] = lambda line: None,
    on_leave: Callable[[int], None] = lambda presses: None,
    env: Mapping[str, str] | None = None,
    log: Path | None = None,
    inherit: Sequence[int] = (),
) -> Outcome:
    """Run a command and pass on each line as it appears; `on_note` gets those of stderr, in another thread.

    The command gets its own process group, so that the terminal's Ctrl-C reaches this process only. The first Ctrl-C
    sends one SIGINT, for which Terraform finishes what is under way and saves its state. The second kills the command
    and all that it started.

    With a `log`, the command prints into that file, which is read here: if this process is killed, the command gets no
    broken pipe and runs to its end. It holds the files `inherit` open while it runs.
    """
    tail: deque[str] = deque(maxlen=_TAIL)
    with _Leaving(on_leave) as leaving, _output(log) as output:
        process = subprocess.Popen(
            command.argv,
            stdin=subprocess.DEVNULL,
            stdout=output or subprocess.PIPE,
            stderr=output or subprocess.PIPE,
            text=True,
            errors="replace",
            env={**os.environ, **(env or {})},
            process_group=0,
            pass_fds=tuple(inherit),
        )
        reader = threading.Thread(target=_notes, args=(process, tail, on_note), daemon=True)
        reader.start()
        try:
            leaving.watch(process)
            for line in _tail_of(log, process) if log else process.stdout or ():
                if log and not line.startswith("{"):
                    tail.append(redact(line))
                on_line(redact(line.rstrip("\n")))
            process.wait()
        finally:
            if process.poll() is None or leaving.presses:
                _kill(process)  # the command and what it left behind
            process.wait()
            reader.join()
            if process.stdout:
                process.stdout.close()
    return Outcome(process.returncode, leaving.presses, "".join(tail))


@contextmanager
def _output(log: Path | None) -> Iterator[IO[bytes] | None]:
    if log is None:
        yield None
        return
    with log.open("wb") as opened:
        yield opened


def _tail_of(log: Path, process: subprocess.Popen[str]) -> Iterator[str]:
    """Yield the lines of a file that a program writes, until it ends."""
    with log.open(encoding="utf-8", errors="replace", newline="\n") as opened:
        rest, ended = "", False
        while True:
            text = opened.read()
            *lines, rest = (rest + text).split("\n")
            yield from (f"{line}\n" for line in lines)
            if ended and not text:
                break
            # Read once more after its end, for what it wrote last.
            ended = process.poll() is not None
            if not text and not ended:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(timeout=0.05)
        if rest:
            yield rest


def _notes(process: subprocess.Popen[str], tail: deque[str], on_note: Callable[[str], None]) -> None:
    if process.stderr is None:
        return
    with process.stderr:
        for line in process.stderr:
            tail.append(redact(line))
            on_note(redact(line.rstrip("\n")))


class _Leaving:
    """A handler of Ctrl-C, SIGTERM and a lost terminal, which stops cleanly the first time and kills the second.

    It is installed before the program starts, so that no Ctrl-C is lost in between.
    """

    def __init__(self, on_leave: Callable[[int], None]) -> None:
        self.presses = 0
        self._on_leave = on_leave
        self._process: subprocess.Popen[str] | None = None
        self._before: dict[int, Any] = {}

    def __enter__(self) -> _Leaving:
        if threading.current_thread() is threading.main_thread():  # only the main thread receives signals
            self._before = {number: signal.signal(number, self._leave) for number in _LEAVE}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def watch(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        if self.presses:
            process.send_signal(signal.SIGINT)

    def _leave(self, number: int, frame: object) -> None:
        self.presses += 1
        if self._process and self.presses == 1:
            self._process.send_signal(signal.SIGINT)
        elif self._process:
            _kill(self._process)
        self._on_leave(self.presses)


def _kill(process: subprocess.Popen[str]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return
