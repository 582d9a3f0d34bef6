"""Command in a container, over the API server's `exec`: an argument list, without a shell in between.

Messages hold a channel and its data: 0 in, 1 out, 2 err, 3 exit status, 4 size of the terminal, 255 end of a channel
(https://kubernetes.io/docs/reference/using-api/websockets, v5.channel.k8s.io).
"""

from __future__ import annotations

import json
import os
import select
import shutil
import signal
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from tpukit.core.errors import Transient
from tpukit.kube.web_socket import WebSocket

PROTOCOL = "v5.channel.k8s.io"
_IN, _OUT, _ERR, _STATUS, _SIZE, _END = 0, 1, 2, 3, 4, 255
_PIECE = 1 << 15
_WAIT_SECONDS = 0.5


@dataclass(frozen=True, slots=True)
class Streams:
    """Files of this process that the command reads and writes."""

    stdin: int = 0
    stdout: int = 1
    stderr: int = 2
    terminal: bool = False  # stdin and stdout are a terminal, and the command gets one too


def query(command: Sequence[str], container: str, *, terminal: bool) -> list[tuple[str, str]]:
    """Return the query of an `exec` path."""
    flags = {"stdin": True, "stdout": True, "stderr": not terminal, "tty": terminal}
    return [
        *(("command", word) for word in command),
        ("container", container),
        *((name, str(given).lower()) for name, given in flags.items()),
    ]


def relay(socket: WebSocket, streams: Streams) -> int:
    """Copy bytes both ways until the command ends, and return its exit code."""
    poll = select.poll()
    poll.register(socket, select.POLLIN)
    poll.register(streams.stdin, select.POLLIN | select.POLLHUP)
    with _raw(socket, streams):
        while True:
            ready = {file for file, _ in poll.poll(_WAIT_SECONDS * 1000)}
            if streams.stdin in ready:
                typed = os.read(streams.stdin, _PIECE)
                if typed:
                    socket.send(bytes([_IN]) + typed)
                else:
                    socket.send(bytes([_END, _IN]))
                    poll.unregister(streams.stdin)
            for message in socket.received() if socket.fileno() in ready else ():
                if message[:1] == bytes([_STATUS]):
                    return _code(message[1:])
                _write(streams, message)
            if not socket.open:
                raise Transient("the connection to the host was lost; the command may still run there")


def _write(streams: Streams, message: bytes) -> None:
    target = {_OUT: streams.stdout, _ERR: streams.stderr}.get(message[0]) if message else None
    data = message[1:]
    while target is not None and data:
        data = data[os.write(target, data) :]


def _code(content: bytes) -> int:
    """Return the exit code from a Kubernetes Status."""
    status: dict[str, Any] = json.loads(content)
    if status.get("status") == "Success":
        return 0
    causes = (status.get("details") or {}).get("causes") or []
    codes = [str(one.get("message", "")) for one in causes if one.get("reason") == "ExitCode"]
    if codes and codes[0].isdecimal():
        return int(codes[0])
    raise Transient(f"the command did not run: {status.get('message') or 'no reason was given'}")


@contextmanager
def _raw(socket: WebSocket, streams: Streams) -> Iterator[None]:
    """Forward every key, including Ctrl-C, and changes of the terminal size."""
    if not streams.terminal:
        yield
        return
    import termios
    import tty

    def resize(*_: object) -> None:
        size = shutil.get_terminal_size()
        with suppress(OSError):
            socket.send(bytes([_SIZE]) + json.dumps({"Width": size.columns, "Height": size.lines}).encode())

    before = termios.tcgetattr(streams.stdin)
    heard = signal.signal(signal.SIGWINCH, resize)
    try:
        tty.setraw(streams.stdin)
        resize()
        yield
    finally:
        termios.tcsetattr(streams.stdin, termios.TCSADRAIN, before)
        signal.signal(signal.SIGWINCH, heard)
