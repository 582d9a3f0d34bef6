"""The worker's process, with a script in place of the compiler: how it may end, and what it leaves."""

from __future__ import annotations

import json
import os
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from support.waiting import PATIENCE
from tpukit.core.errors import Denied, Invalid, Transient
from tpukit.fit import running
from tpukit.fit.program import Program
from tpukit.fit.running import Stopped, Unfinished

SECRET = "hunter2-very-secret"
ANSWER, PROGRESS = "$5", '"$(dirname "$5")/progress"'  # $1 to $5: -c, the code, packages, request, answer


@pytest.fixture
def carry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that runs a shell script as the worker."""
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(running.tempfile, "tempdir", str(scratch))
    monkeypatch.setattr(running, "free_memory", lambda: 8 << 30)
    script = tmp_path / "python"

    def run(body: str, *, seconds: float = PATIENCE, stop: threading.Event | None = None) -> dict[str, Any]:
        script.write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\n{body}\n")
        script.chmod(0o755)
        program = Program(str(tmp_path), "script", ("t.py",), (), "v5e:2x2", 1, (2, 2, 1), (SECRET,))
        try:
            return running.carry(script, program, {"API_TOKEN": SECRET}, seconds, lambda _text: None, stop)
        finally:
            assert list(scratch.iterdir()) == [], "its files are removed"
            assert not _alive(int((tmp_path / "pid").read_text())), "its process is gone"

    return run


def _alive(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    return True


def test_answer_of_the_worker_is_returned(carry: Any) -> None:
    assert carry(f'echo \'{{"ended": "exit", "programs": []}}\' > "{ANSWER}"') == {"ended": "exit", "programs": []}


def test_compiler_that_is_killed_is_reported_as_too_little_memory(carry: Any) -> None:
    with pytest.raises(Denied, match="most likely because memory ran out"):
        carry("kill -KILL $$")


def test_program_that_ends_the_process_is_reported_with_its_last_error_but_no_secret(carry: Any) -> None:
    with pytest.raises(Invalid, match=r"exit code 3 before its first step: Error: bad token \*\*\*") as error:
        carry(f"echo 'Error: bad token {SECRET}'; exit 3")
    assert SECRET not in str(error.value)


def test_program_that_never_steps_is_stopped_and_what_it_did_is_named(carry: Any) -> None:
    with pytest.raises(Unfinished, match=r"no step after 1 s \(compiling step\)"):
        carry(f"echo 'compiling step' > {PROGRESS}\nsleep 3600", seconds=1.0)


def test_compile_that_another_thread_stops_ends_soon(carry: Any) -> None:
    stop = threading.Event()
    timer = threading.Timer(0.3, stop.set)
    timer.start()
    began = time.monotonic()
    with pytest.raises(Stopped):
        carry("sleep 3600", stop=stop)
    assert time.monotonic() - began < PATIENCE


def test_compiler_that_does_not_start_asks_for_another_try(carry: Any) -> None:
    answer = json.dumps({"ended": "topology", "error": {"text": "no such chip\nmore"}})
    with pytest.raises(Transient, match="did not start for v5e:2x2: no such chip"):
        carry(f"cat > \"{ANSWER}\" <<'END'\n{answer}\nEND")


def test_little_free_memory_is_refused_before_anything_starts(carry: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "free_memory", lambda: 100 << 20)
    program = Program("/", "script", ("t.py",), (), "v5e:2x2", 1, (2, 2, 1), ())
    with pytest.raises(Denied, match=r"needs 1,500 MB of memory, and 100 MB are free"):
        running.carry(Path("/nowhere"), program, {}, 1.0, lambda _text: None)
