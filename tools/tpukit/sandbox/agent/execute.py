"""kubectl exec: a command inside a running container, over a WebSocket that the API server passes through.

Binary frames hold a channel and its data: 0 in, 1 out, 2 err, 3 how it ended, 255 the end of a channel
(https://kubernetes.io/docs/reference/using-api/websockets, v5.channel.k8s.io). There are no terminals.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import struct
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO

from tpukit import pods
from tpukit.errors import Invalid
from tpukit.pods import Phase
from tpukit.sandbox.agent.container_logs import find_run
from tpukit.sandbox.agent.door import Request

PROTOCOL = "v5.channel.k8s.io"
_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_BINARY, _CLOSE, _PING, _PONG = 2, 8, 9, 10
_IN, _OUT, _ERR, _STATUS, _END = 0, 1, 2, 3, 255
_LARGEST_FRAME = 1 << 24


def serve(request: Request, root: Path) -> None:
    namespace, pod, container = request.words[1:4]
    command = [value for name, value in request.queries if name == "command"]
    run = find_run(root, namespace, pod, container)
    state = pods.status(run)
    if state.phase is not Phase.RUNNING:
        raise Invalid(f'container "{container}" of pod "{pod}" does not run')
    offered = [word.strip() for word in request.headers.get("Sec-WebSocket-Protocol", "").split(",")]
    if request.headers.get("Upgrade", "").lower() != "websocket" or PROTOCOL not in offered or not command:
        raise Invalid(f"exec is spoken as {PROTOCOL} over WebSocket, with a command", hint="use kubectl 1.30 or newer")
    socket = _Socket(request)
    try:
        process = start(run, state.pid, command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    except OSError as error:
        socket.send(_STATUS, json.dumps(_failure(f"{command[0]}: {error.strerror}", 126)).encode())
        socket.close()
        return
    outputs = [
        threading.Thread(target=_copy, args=(pipe, socket, channel), daemon=True)
        for channel, pipe in ((_OUT, process.stdout), (_ERR, process.stderr))
    ]
    for thread in (*outputs, threading.Thread(target=_feed, args=(socket, process), daemon=True)):
        thread.start()
    code = process.wait()
    for thread in outputs:
        thread.join(timeout=5.0)
    for pipe in (process.stdin, process.stdout, process.stderr):
        with suppress(OSError):  # nobody reads what was still to be written
            assert pipe is not None
            pipe.close()
    ended = {"status": "Success"} if code == 0 else _failure(f"command terminated with exit code {code}", code)
    socket.send(_STATUS, json.dumps({"metadata": {}, **ended}).encode())
    socket.close()


def start(run: Path, pid: int, command: list[str], *, stdin: int, stderr: int) -> subprocess.Popen[bytes]:
    """With the view of the file system, the user, the limits and the environment of the container's first process."""
    environ = Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")
    env = dict(word.split(b"=", 1) for word in environ if b"=" in word)
    argv = pods.joining(run, pid, command)
    return subprocess.Popen(argv, env=env, stdin=stdin, stdout=subprocess.PIPE, stderr=stderr, start_new_session=True)


def _copy(pipe: IO[bytes], socket: _Socket, channel: int) -> None:
    while piece := os.read(pipe.fileno(), 1 << 16):
        socket.send(channel, piece)


def _feed(socket: _Socket, process: subprocess.Popen[bytes]) -> None:
    """What comes in, until the other side is done or gone: then so is the command."""
    assert process.stdin is not None
    while (frame := socket.receive()) is not None:
        channel, data = frame
        try:
            if channel == _IN:
                process.stdin.write(data)
                process.stdin.flush()
            elif channel == _END and data[:1] == bytes([_IN]):
                process.stdin.close()
        except (OSError, ValueError):
            continue  # the command does not listen any more
    if process.poll() is None:
        process.kill()


def _failure(message: str, code: int) -> dict[str, object]:
    causes = [{"reason": "ExitCode", "message": str(code)}]
    return {"status": "Failure", "reason": "NonZeroExitCode", "message": message, "details": {"causes": causes}}


class _Socket:
    """The server's side of a WebSocket, after the handshake."""

    def __init__(self, request: Request) -> None:
        key = request.headers.get("Sec-WebSocket-Key", "").encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
        request.send_response(101)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept),
            ("Sec-WebSocket-Protocol", PROTOCOL),
        ):
            request.send_header(name, value)
        request.end_headers()
        request.close_connection = True
        request.connection.settimeout(None)
        self._read, self._write = request.rfile, request.wfile
        self._lock = threading.Lock()

    def send(self, channel: int, data: bytes) -> None:
        self._frame(_BINARY, bytes([channel]) + data)

    def close(self) -> None:
        self._frame(_CLOSE, struct.pack("!H", 1000))

    def receive(self) -> tuple[int, bytes] | None:
        """Channel and data of the next frame; None when there are no more."""
        try:
            while True:
                first, second = self._read.read(2)
                size = second & 127
                if size > 125:
                    size = int.from_bytes(self._read.read(2 if size == 126 else 8))
                mask = self._read.read(4) if second & 128 else bytes(4)
                if size > _LARGEST_FRAME:
                    return None
                data = bytes(byte ^ mask[index % 4] for index, byte in enumerate(self._read.read(size)))
                kind = first & 15
                if kind == _CLOSE:
                    return None
                if kind == _PING:
                    self._frame(_PONG, data)
                elif data:
                    return data[0], data[1:]
        except (OSError, ValueError):
            return None

    def _frame(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = bytes([128 | kind])
        if size < 126:
            head += bytes([size])
        else:
            head += b"\x7e" + struct.pack("!H", size) if size < 1 << 16 else b"\x7f" + struct.pack("!Q", size)
        with self._lock:
            self._write.write(head + data)
            self._write.flush()
