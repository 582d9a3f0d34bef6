"""`tpu` commands as processes forked from one that has already loaded the program.

Each has its own environment, folder and files, as if a shell had started it, without the time that Python takes to load
the same modules for each of several hundred commands.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import IO, Any

LOADED = (
    *(
        "tpukit.jobs.controller.driver",
        "tpukit.places.by_name",
        "tpukit.places.local.place",
        "tpukit.kernel.store.sqlite",
        "tpukit.jobs.spec.settings",
    ),
    *(
        "tpukit.jobs.report.tables",
        "tpukit.jobs.snapshots",
        "tpukit.jobs.plan",
        "tpukit.serve",
        "tpukit.code_queue",
        "tpukit.sharing",
    ),
)


class Forked:
    """A forked command, with the part of `subprocess.Popen` that tests use."""

    def __init__(self, connection: socket.socket, words: Sequence[str]) -> None:
        self._connection, self._words = connection, list(words)
        self.pid = self._number()
        self.returncode: int | None = None

    def _number(self) -> int:
        sent = self._connection.recv(8, socket.MSG_WAITALL)
        assert len(sent) == 8, "the server of forked commands has ended"
        return int.from_bytes(sent, signed=True)

    def poll(self) -> int | None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.wait(0)
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        if self.returncode is None:
            if not select.select([self._connection], [], [], timeout)[0]:
                raise subprocess.TimeoutExpired(self._words, timeout or 0)
            self.returncode = self._number()
            self._connection.close()
        return self.returncode

    def send_signal(self, number: int) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        self.send_signal(signal.SIGTERM)


class Server:
    """A server of forked commands, one for each process of tests. It ends with that process."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._address = f"{self._folder.name}/socket"
        paths = os.pathsep.join(path for path in sys.path if path)
        self._process = subprocess.Popen(
            [sys.executable, __file__, self._address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"PATH": os.environ["PATH"], "PYTHONPATH": paths, "PYTHONFAULTHANDLER": "1"},
        )
        assert self._process.stdout and self._process.stdout.readline() == b"ready\n"
        atexit.register(self.close)

    def close(self) -> None:
        assert self._process.stdin and self._process.stdout
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()
        self._folder.cleanup()

    def start(
        self, words: Sequence[str], env: Mapping[str, str], cwd: Path, out: IO[Any], err: IO[Any], *, session: bool
    ) -> Forked:
        """Start a command that writes into two files, in a session of its own or in that of the server."""
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        asked = json.dumps([list(words), dict(env), str(cwd), session]).encode()
        socket.send_fds(connection, [len(asked).to_bytes(4)], [out.fileno(), err.fileno()])
        connection.sendall(asked)
        return Forked(connection, words)

    def run(
        self, words: Sequence[str], env: Mapping[str, str], cwd: Path, seconds: float
    ) -> subprocess.CompletedProcess[str]:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err:
            process = self.start(words, env, cwd, out, err, session=False)
            try:
                code = process.wait(seconds)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
                raise
            said = []
            for file in (out, err):
                file.seek(0)
                said.append(file.read().decode())
        return subprocess.CompletedProcess(list(words), code, *said)


@cache
def server() -> Server:
    return Server()


def _serve(address: str) -> None:
    """Fork a process for each connection, until stdin is closed."""
    _load()
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(address)
    listening.listen(64)
    os.set_inheritable(0, False)
    ends = os.dup(0)
    os.set_blocking(ends, False)
    print("ready", flush=True)
    os.dup2(os.open(os.devnull, os.O_RDWR), 0)
    while True:
        ready, _, _ = select.select([listening, ends], [], [])
        if ends in ready:
            return
        connection, _ = listening.accept()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        if os.fork() == 0:
            listening.close()
            os.close(ends)
            _supervise(connection)
        connection.close()


def _load() -> None:
    import tpukit.__main__
    import tpukit.cli

    for module in pkgutil.iter_modules(tpukit.cli.__path__, "tpukit.cli."):
        if "monitor_app" not in module.name:  # Textual, used by one command
            importlib.import_module(module.name)
    for name in LOADED:
        importlib.import_module(name)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


def _supervise(connection: socket.socket) -> None:
    """Start the command, and send its process id and its exit status."""
    size, files, _, _ = socket.recv_fds(connection, 4, 2)
    asked = b""
    while len(asked) < int.from_bytes(size):
        asked += connection.recv(1 << 16)
    if not (pid := os.fork()):
        connection.close()
        for number, file in enumerate(files, 1):
            os.dup2(file, number)
            os.close(file)
        _become(*json.loads(asked))
    for file in files:
        os.close(file)
    with contextlib.suppress(OSError):
        connection.sendall(pid.to_bytes(8))
        connection.sendall(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]).to_bytes(8, signed=True))
    os._exit(0)


def _become(words: list[str], env: dict[str, str], cwd: str, session: bool) -> None:
    import tpukit.__main__

    if session:
        os.setsid()
    os.environ.clear()
    os.environ.update(env)
    os.chdir(cwd)
    sys.argv = ["tpu", *words]
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    code = 0
    try:
        tpukit.__main__.main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as the interpreter would  # noqa: BLE001
        traceback.print_exc()
        code = 1
    # Python does the same at exit.
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    with contextlib.suppress(OSError):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)


if __name__ == "__main__":
    _serve(sys.argv[1])
