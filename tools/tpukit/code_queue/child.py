"""One process for the code of one job: started ahead, given the job when there is one, with its outcome classified.

The code is not trusted: it returns text within limits, never objects.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tpukit.code_queue.decide import Outcome
from tpukit.jobs.reasons import Reason

OUTPUT = 64 * 1024
"""Bytes of output that are kept: half from the beginning, half from the end."""
LATE_SECONDS = 10.0
"""Seconds to wait after the timeout if the watching process has not ended the code."""
_PASSED = ("PATH", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "TZ")
_PASSED_PREFIXES = ("JAX_", "XLA_", "LIBTPU_", "TPU_", "MEGASCALE_", "PYTHON")


@dataclass(frozen=True, slots=True)
class Limits:
    memory: int = 4 * 2**30
    processes: int = 256  # JAX alone has a dozen threads for each core
    file: int = 2**30
    network: bool = False
    result: int = 16 * 2**20


class Child:
    """A process for one job. `run` is called at most once, `stop` at any time from any thread."""

    def __init__(self, folder: Path, limits: Limits, *, cache: Path | None = None, preload: Sequence[str] = ()) -> None:
        self._folder, self._limits = folder, limits
        scratch = folder / "scratch"
        scratch.mkdir(parents=True)
        if cache:
            cache.mkdir(parents=True, exist_ok=True)
        settings = {
            "limits": {
                "memory": limits.memory,
                "processes": limits.processes,
                "file": limits.file,
                "network": limits.network,
            },
            "result_limit": limits.result,
            "preload": list(preload),
            "writable": [str(cache)] if cache else [],
            "parent": os.getpid(),
        }
        (folder / "settings.json").write_text(json.dumps(settings), encoding="utf-8")
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", "tpukit.host.code_runner", str(folder)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=folder,
            env=_environment(scratch, cache),
            start_new_session=True,
        )
        self._output = _Output(self._process)
        self._stopped = False

    def run(self, code: str, timeout: float) -> Outcome:
        line = json.dumps({"code": code, "timeout": timeout}).encode() + b"\n"
        assert self._process.stdin
        with suppress(OSError):  # it ended before: its report gives the reason
            self._process.stdin.write(line)
            self._process.stdin.close()
        try:
            self._process.wait(timeout + LATE_SECONDS + 60.0)
        except subprocess.TimeoutExpired:
            self._kill()
        text = self._output.text()
        return self._outcome(text, timeout)

    @property
    def alive(self) -> bool:
        return self._process.poll() is None

    def stop(self) -> None:
        self._stopped = True
        self._kill()

    def close(self) -> None:
        """Kill the process and remove its files."""
        self._kill()
        self._process.wait()
        if self._process.stdin:
            with suppress(OSError):
                self._process.stdin.close()
        self._output.text()
        shutil.rmtree(self._folder, ignore_errors=True)

    def layers(self) -> Sequence[str]:
        layers = self._report().get("layers")
        return [str(layer) for layer in layers] if isinstance(layers, list) else []

    def _kill(self) -> None:
        # Killing the watching process is enough: its descendants die with it.
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)

    def _report(self) -> dict[str, object]:
        try:
            report = json.loads((self._folder / "report.json").read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return {}
        return report if isinstance(report, dict) else {}

    def _outcome(self, logs: str, timeout: float) -> Outcome:
        if self._stopped:
            return Outcome(Reason.CANCELLED, logs=logs)
        report = self._report()
        if not report:
            what = f"the process that runs the code ended ({_exit(self._process.returncode)})"
            return Outcome(Reason.HOST_LOST, error=f"{what}: {logs[-300:]}", logs=logs)
        if report["killed"] == "timeout":
            return Outcome(Reason.TIMEOUT, error=f"the job ran longer than its timeout of {timeout:g} s", logs=logs)
        if report["killed"] == "memory":
            return Outcome(Reason.OUT_OF_MEMORY, error=f"the job used more than {self._memory()}", logs=logs)
        if report["killed"]:
            return Outcome(Reason.USER_ERROR, error=f"the job had {report['killed']}", logs=logs)
        result = self._result()
        if result is None and report["status"] == -signal.SIGABRT and "," in os.environ.get("TPU_WORKER_HOSTNAMES", ""):
            # JAX aborts this way when another host is lost.
            return Outcome(
                Reason.PEER_LOST, error="the hosts of the slice lost their connection to each other", logs=logs
            )
        if result is None:
            said = f"the program exited early ({_exit(report['status'])})"
            return Outcome(Reason.USER_ERROR, error=said, logs=logs)
        if result.get("kind") == "memory":
            error = f"the job used more than {self._memory()}\n{result['error']}"
            return Outcome(Reason.OUT_OF_MEMORY, error=error, logs=logs)
        if result.get("kind") == "hosts":
            return Outcome(Reason.HOST_LOST, error=str(result["error"])[:OUTPUT], logs=logs)
        if "error" in result:
            return Outcome(Reason.USER_ERROR, error=str(result["error"])[:OUTPUT], logs=logs)
        text = result.get("result")
        return Outcome(Reason.DONE, result=logs if text is None else str(text), logs=logs)

    def _result(self) -> dict[str, object] | None:
        """Read the result that the code left: it may be anything, of any size, or a link to another file."""
        path = self._folder / "scratch" / ".result.json"
        most = self._limits.result * 6 + 100_000  # JSON may encode a character in six
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
            with os.fdopen(descriptor, "rb") as file:
                raw = file.read(most + 1)
            result = json.loads(raw) if len(raw) <= most else None
        except (OSError, ValueError, RecursionError):
            return None
        return result if isinstance(result, dict) else None

    def _memory(self) -> str:
        return f"{self._limits.memory / 2**30:.3g} GiB of memory"


class _Output:
    """Output of a process: read continuously, so that the process never blocks, and kept only as far as it is shown."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self._process = process
        self._head, self._tail, self._size = bytearray(), bytearray(), 0
        self._thread = threading.Thread(target=self._read, name="output", daemon=True)
        self._thread.start()

    def text(self) -> str:
        self._thread.join(5.0)
        left_out = self._size - len(self._head) - len(self._tail)
        middle = f"\n... {left_out:,} bytes left out ...\n".encode() if left_out else b""
        return (bytes(self._head) + middle + bytes(self._tail)).decode("utf-8", "replace").replace("\0", "�")

    def _read(self) -> None:
        assert self._process.stdout
        with self._process.stdout as pipe:
            while data := os.read(pipe.fileno(), 65536):
                self._size += len(data)
                room = OUTPUT // 2 - len(self._head)
                self._head += data[: max(0, room)]
                self._tail += data[max(0, room) :]
                del self._tail[: -OUTPUT // 2]


def _environment(scratch: Path, cache: Path | None) -> dict[str, str]:
    """Return an environment without credentials and without addresses of proxies or metadata servers."""
    passed = {name: value for name, value in os.environ.items() if name in _PASSED or name.startswith(_PASSED_PREFIXES)}
    own = {"HOME": str(scratch), "TMPDIR": str(scratch), "PYTHONUNBUFFERED": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    # Pass our own search path so that the interpreter finds tpukit in a checkout that is not installed.
    own["PYTHONPATH"] = os.pathsep.join(dict.fromkeys([str(Path(__file__).parents[2]), *filter(None, sys.path)]))
    if cache:
        own["JAX_COMPILATION_CACHE_DIR"] = str(cache)
        own["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0"
    return passed | own


def _exit(status: object) -> str:
    if not isinstance(status, int):
        return "exit code unknown"
    if status < 0:
        with suppress(ValueError):
            return f"killed by {signal.Signals(-status).name}"
    return f"exit code {status}"


def fresh_folder(base: Path) -> Path:
    """Create a folder for one child. `sweep` removes those of dead ones."""
    folder = base / f"{os.getpid()}-{os.urandom(6).hex()}"
    folder.mkdir(parents=True, mode=0o700)
    return folder


def sweep(base: Path) -> None:
    """Remove folders of processes that have ended."""
    for folder in base.glob("*-*"):
        pid = folder.name.partition("-")[0]
        if pid.isdigit() and not Path("/proc", pid).exists():
            shutil.rmtree(folder, ignore_errors=True)
