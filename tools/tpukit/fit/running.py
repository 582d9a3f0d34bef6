"""Run the worker and return its answer. `carry` removes its files and processes before it returns or raises."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from tpukit.core.clock import SYSTEM
from tpukit.core.errors import Denied, Invalid, Problem, TpukitError, Transient
from tpukit.fit.program import FUNCTION_HINT, Program

START = "import sys; sys.path += sys.argv.pop(1).split(chr(10)); from tpukit.fit.worker.main import main; main()"
MEMORY_MB = 1500
"""Free memory below which no compile starts; the smallest compile seen took 900 MB."""

Say = Callable[[str], None]


class Unfinished(TpukitError):
    """Error for a program that did not reach a step in time."""


class Stopped(TpukitError):
    """Error for a compile that another thread stopped."""


def carry(
    python: Path,
    program: Program,
    env: Mapping[str, str],
    seconds: float,
    say: Say,
    stop: threading.Event | None = None,
) -> dict[str, Any]:
    """Return the worker's answer. Raise Unfinished after `seconds`, and Stopped soon after `stop` is set."""
    _check_memory()
    with _folder() as folder:
        request, answer = folder / "request.json", folder / "answer.json"
        request.write_text(json.dumps(program.to_json()), encoding="utf-8")
        argv = [str(python), "-c", START, "\n".join(_packages(program)), str(request), str(answer)]
        with (folder / "log").open("wb") as log:
            process = subprocess.Popen(
                argv,
                cwd=program.folder,
                env=_environment(program, env, folder),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
            try:
                finished = _wait(process, folder / "progress", seconds, say, stop)
            finally:
                _kill(process)
        if not finished:
            doing = _read(folder / "progress") or "starting"
            raise Unfinished(
                f"no step after {seconds:.0f} s ({doing})", hint=f"allow more time with --timeout, {FUNCTION_HINT}"
            )
        if not answer.exists():
            raise _died(process.returncode, folder / "log", program.masked)
        found: dict[str, Any] = json.loads(answer.read_text(encoding="utf-8"))
        if found["ended"] == "topology":
            said = found["error"]["text"].strip().splitlines()[0][:300]
            raise Transient(
                f"the TPU compiler did not start for {program.topology}: {said}", hint="run the command again"
            )
        return found


@contextmanager
def _folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="tpukit-fit-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _packages(program: Program) -> list[str]:
    """Return folders to add to the environment's: the program's packages, then tpukit for its host library."""
    return [*program.site, str(Path(__file__).resolve().parents[2])]


def _environment(program: Program, env: Mapping[str, str], folder: Path) -> dict[str, str]:
    own = {name: os.environ[name] for name in ("PATH", "HOME", "LANG", "USER", "LOGNAME") if name in os.environ}
    return {
        **own,
        **env,
        "JAX_PLATFORMS": "cpu",
        "TPU_SKIP_MDS_QUERY": "1",
        "ALLOW_MULTIPLE_LIBTPU_LOAD": "true",  # otherwise one process locks out all others on the machine
        "TF_CPP_MIN_LOG_LEVEL": "3",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TMPDIR": str(folder),
        "TPUKIT_WORKDIR": str(folder / "workdir"),
        "TPUKIT_JOB": "fit",
    }


def _wait(
    process: subprocess.Popen[bytes], progress: Path, seconds: float, say: Say, stop: threading.Event | None
) -> bool:
    until, last = SYSTEM.monotonic() + seconds, ""
    while SYSTEM.monotonic() < until:
        if stop is not None and stop.is_set():
            raise Stopped("the compile was stopped")
        with suppress(subprocess.TimeoutExpired):
            process.wait(0.2)
            return True
        if (text := _read(progress)) and text != last:
            say(text)
            last = text
    return False


def _kill(process: subprocess.Popen[bytes]) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(file: Path) -> str:
    with suppress(OSError):
        return file.read_text(encoding="utf-8").strip()
    return ""


def _died(code: int, log: Path, masked: Sequence[str]) -> Exception:
    if code == -signal.SIGKILL:
        hint = "compile on a machine with more memory, or scan over the layers so that one of them is compiled"
        return Denied("the compiler was killed, most likely because memory ran out", hint=hint)
    text = log.read_text(encoding="utf-8", errors="replace")
    for value in masked:
        text = text.replace(value, "***")
    line = next((one for one in reversed(text.splitlines()) if "Check failed" in one or "Error" in one), "")
    what = f"the program ended with exit code {code} before its first step" + (
        f": {line.strip()[:300]}" if line else ""
    )
    return Invalid(Problem("", what, f"run it once with `tpu run --place local`, {FUNCTION_HINT}"))


def free_memory() -> int | None:
    """Return the bytes of memory that are free on this machine, or None if it does not say."""
    with suppress(OSError, StopIteration, ValueError):
        lines = Path("/proc/meminfo").read_text(encoding="ascii").splitlines()
        return int(next(line for line in lines if line.startswith("MemAvailable:")).split()[1]) << 10
    return None


def _check_memory() -> None:
    free = free_memory()
    if free is not None and free >> 20 < MEMORY_MB:
        hint = "stop other programs, or run `tpu fit` on a larger machine"
        what = f"the TPU compiler needs {MEMORY_MB:,} MB of memory, and {free >> 20:,} MB are free"
        raise Denied(what, hint=hint)
