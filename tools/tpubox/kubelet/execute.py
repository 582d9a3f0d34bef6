"""Implementation of kubectl exec: a command inside a running container, over a WebSocket through the API server.

Messages hold a channel and its data: 0 stdin, 1 stdout, 2 stderr, 3 exit status, 4 terminal size, 255 end of a channel
(https://kubernetes.io/docs/reference/using-api/websockets, v5.channel.k8s.io).
"""

from __future__ import annotations

import fcntl
import json
import os
import select
import signal
import struct
import subprocess
import termios
from contextlib import suppress
from pathlib import Path

from tpubox.kubelet.container_logs import find_run
from tpubox.kubelet.door import Request
from tpubox.kubelet.websocket import WebSocket
from tpukit.core.errors import Invalid
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase

PROTOCOL = "v5.channel.k8s.io"
_IN, _OUT, _ERR, _STATUS, _SIZE, _END = 0, 1, 2, 3, 4, 255
_PIECE = 1 << 16


def serve(request: Request, root: Path) -> None:
    namespace, pod, container = request.words[1:4]
    words = [value for name, value in request.queries if name == "command"]
    run = find_run(root, namespace, pod, container)
    state = pods.status(run)
    if state.phase is not Phase.RUNNING:
        raise Invalid(f'container "{container}" of pod "{pod}" does not run')
    offered = [word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if request.headers.get("Upgrade", "").lower() != "websocket" or PROTOCOL not in offered or not words:
        raise Invalid(f"exec is spoken as {PROTOCOL} over WebSocket, with a command", hint="use kubectl 1.30 or newer")
    wanted = {name for name, value in request.queries if value == "1"}
    socket = WebSocket(request, PROTOCOL)
    try:
        command = _Command(run, state.pid, words, typed="input" in wanted, terminal="tty" in wanted)
    except OSError as error:
        socket.send(_ended(126, f"{words[0]}: {error.strerror}"))
    else:
        code = command.relay(socket)
        socket.send(_ended(code, f"command terminated with exit code {code}"))
    socket.close()


def start(run: Path, pid: int, command: list[str], *, stdin: int, stdout: int, stderr: int) -> subprocess.Popen[bytes]:
    """Start a command with the file system, user, limits and environment of the container's first process."""
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    env = dict(word.split(b"=", 1) for word in environ if b"=" in word)
    argv = pods.joining(run, pid, command)
    return subprocess.Popen(argv, env=env, stdin=stdin, stdout=stdout, stderr=stderr, start_new_session=True)


def _ended(code: int, message: str) -> bytes:
    status: dict[str, object] = {"metadata": {}, "status": "Success"}
    if code:
        causes = [{"reason": "ExitCode", "message": str(code)}]
        status |= {"status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": {"causes": causes}}
    return bytes([_STATUS]) + json.dumps(status).encode()


class _Command:
    """A running command, and this side of its input and output."""

    def __init__(self, run: Path, pid: int, words: list[str], *, typed: bool, terminal: bool) -> None:
        self._typed = bytearray()
        """Input that the command has not read yet."""
        self._typed_all = not typed
        if terminal:
            screen, stdin = os.openpty()
            stdout = stderr = stdin
            self._input, self._outputs = os.dup(screen), {screen: _OUT}
        else:
            (stdin, self._input), (out, stdout), (err, stderr) = os.pipe(), os.pipe(), os.pipe()
            self._outputs = {out: _OUT, err: _ERR}
        os.set_blocking(self._input, False)
        try:
            self._process = start(run, pid, words, stdin=stdin, stdout=stdout, stderr=stderr)
        except OSError:
            self._close()
            raise
        finally:
            for end in {stdin, stdout, stderr}:  # a copy here would keep the streams open
                os.close(end)

    def relay(self, socket: WebSocket) -> int:
        """Relay input and output and return the exit code.

        Relaying ends when the command and all its children that hold its output have ended (as in containerd), or when
        the client disconnects, which kills the command.
        """
        ended = -1
        try:
            ended = os.pidfd_open(self._process.pid)
            waiting = {ended, *self._outputs}
            while waiting and socket.open:
                if self._typed_all and not self._typed:
                    self._stop_typing()
                for file, events in self._ready(socket, waiting):
                    if file == socket.fileno():
                        self._hear(socket, events)
                    elif file == self._input:
                        self._type()
                    elif file == ended or not self._say(socket, file):
                        waiting.discard(file)
        finally:
            if ended >= 0:
                os.close(ended)
            if self._process.poll() is None:
                with suppress(ProcessLookupError):
                    os.killpg(self._process.pid, signal.SIGKILL)
            code = self._process.wait()
            self._close()
        return code if code >= 0 else 128 - code

    def _ready(self, socket: WebSocket, waiting: set[int]) -> list[tuple[int, int]]:
        """Return the descriptors that are ready; if the client sends faster than the command reads, skip the client."""
        poll = select.poll()
        for file in waiting:
            poll.register(file, select.POLLIN)
        if self._typed:
            poll.register(self._input, select.POLLOUT)
        poll.register(socket, select.POLLRDHUP | (select.POLLIN if len(self._typed) < _PIECE else 0))
        return poll.poll()

    def _hear(self, socket: WebSocket, events: int) -> None:
        if not events & select.POLLIN:
            socket.open = False
            return
        for message in socket.receive():
            channel, data = message[:1], message[1:]
            if channel == bytes([_IN]) and not self._typed_all:
                self._typed += data
            elif channel == bytes([_SIZE]):
                self._resize(data)
            elif message == bytes([_END, _IN]):
                self._typed_all = True

    def _type(self) -> None:
        try:
            del self._typed[: os.write(self._input, self._typed)]
        except BlockingIOError:
            return
        except OSError:  # the command no longer reads
            self._typed.clear()
            self._typed_all = True

    def _say(self, socket: WebSocket, file: int) -> bool:
        """Send a piece of output, and return whether there may be more."""
        try:
            piece = os.read(file, _PIECE)
        except BlockingIOError:
            return True
        except OSError:  # no process has the terminal open
            return False
        if piece:
            socket.send(bytes([self._outputs[file]]) + piece)
        return bool(piece)

    def _resize(self, data: bytes) -> None:
        with suppress(OSError, ValueError, KeyError, TypeError, struct.error):
            size = json.loads(data)
            packed = struct.pack("HHHH", size["Height"], size["Width"], 0, 0)
            fcntl.ioctl(next(iter(self._outputs)), termios.TIOCSWINSZ, packed)

    def _stop_typing(self) -> None:
        if self._input >= 0:
            os.close(self._input)
            self._input = -1

    def _close(self) -> None:
        self._stop_typing()
        for file in self._outputs:
            os.close(file)
