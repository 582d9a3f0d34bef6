"""Handlers of probes and hooks: a command in the container, or a request or connection to it.

https://kubernetes.io/docs/tasks/configure-pod-container/configure-liveness-readiness-startup-probes/
"""

from __future__ import annotations

import http.client
import os
import select
import signal
import socket
import ssl
import subprocess
import threading
from contextlib import suppress
from pathlib import Path
from typing import IO
from urllib.parse import urlunsplit

from tpubox.kubelet import execute
from tpubox.kubelet.env import Object

_ANSWER_BYTES = 10 << 10
_AGENT = "kube-probe/1.36"


def trouble(probe: Object, container: Object, run: Path, pid: int, address: str) -> str:
    """Return why the probe failed, or "" if it succeeded.

    `pid` is the container's first process, `address` its pod's. gRPC probes always succeed here.
    """
    seconds = float(probe.get("timeoutSeconds") or 1)
    if "exec" in probe:
        return command(probe["exec"], run, pid, seconds)
    if "httpGet" in probe:
        status, problem = request(probe["httpGet"], container, address, seconds)
        return problem or ("" if 200 <= status < 400 else f"HTTP probe failed with statuscode: {status}")
    return _connect(probe["tcpSocket"], container, address, seconds) if "tcpSocket" in probe else ""


def command(asked: Object, run: Path, pid: int, seconds: float) -> str:
    """Run a command and return why it failed, or "" if it succeeded."""
    words = asked.get("command", [])
    try:
        process = execute.start(
            run, pid, words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )
    except OSError as error:
        return str(error)
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    heard, turn = bytearray(), threading.Lock()
    threading.Thread(target=_listen, args=(process.stdout, heard, turn), daemon=True).start()
    try:
        code = process.wait(seconds)
    except subprocess.TimeoutExpired:
        return f"command timed out: {' '.join(words)!r} timed out after {seconds:g}s"
    finally:
        with suppress(ProcessLookupError):  # including its children, which hold its output open
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        # Read the output that was printed before the end. Do not wait for end of file: a daemon that the command left
        # behind may keep the pipe open forever.
        while len(heard) < _ANSWER_BYTES and _hear(process.stdout, heard, turn):
            pass
    return (heard.decode(errors="replace") or f"exit code {code}") if code else ""


def _listen(pipe: IO[bytes], heard: bytearray, turn: threading.Lock) -> None:
    """Read the output, so that the command does not block on a full pipe."""
    printed = select.poll()
    printed.register(pipe, select.POLLIN)
    while printed.poll() and _hear(pipe, heard, turn) != b"":
        pass
    with turn:
        pipe.close()


def _hear(pipe: IO[bytes], heard: bytearray, turn: threading.Lock) -> bytes | None:
    """Read the next piece: b"" at the end, None if there is no data yet.

    Only the first part is kept, because a command may print forever.
    """
    with turn:
        try:
            piece = b"" if pipe.closed else os.read(pipe.fileno(), 1 << 16)
        except BlockingIOError:
            return None
        heard += piece[: _ANSWER_BYTES - len(heard)]
        return piece


def request(asked: Object, container: Object, address: str, seconds: float) -> tuple[int, str]:
    """Return the status of the response, or why there was none."""
    port = _port(asked["port"], container)
    if port is None:
        return 0, f"couldn't find port: {asked['port']}"
    secure = asked.get("scheme") == "HTTPS"
    host, path = asked.get("host") or address, asked.get("path") or "/"
    url = urlunsplit(("https" if secure else "http", f"{host}:{port}", path, "", ""))
    headers = {"User-Agent": _AGENT, "Accept": "*/*", "Connection": "close"}
    headers |= {one["name"]: one.get("value", "") for one in asked.get("httpHeaders", [])}
    connection: http.client.HTTPConnection
    if secure:  # a kubelet does not verify the certificate
        context = ssl._create_unverified_context()  # noqa: S323
        connection = http.client.HTTPSConnection(host, port, timeout=seconds, context=context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=seconds)
    late = threading.Event()
    limit = threading.Timer(seconds, _hang_up, (connection, late))  # the socket's timeout is per read
    limit.daemon = True  # do not delay the exit of the agent while a hook runs
    limit.start()
    status, problem = 0, ""
    try:
        connection.request("GET", path, headers=headers)
        status = connection.getresponse().status
    except TimeoutError:
        late.set()
    except (OSError, ValueError, http.client.HTTPException) as error:  # ValueError: a header that cannot be sent
        problem = _words(error)
    finally:
        limit.cancel()
        connection.close()
    if late.is_set():
        problem = "context deadline exceeded (Client.Timeout exceeded while awaiting headers)"
    return status, f'Get "{url}": {problem}' if problem else ""


def _hang_up(connection: http.client.HTTPConnection, late: threading.Event) -> None:
    late.set()
    with suppress(OSError, TypeError):  # the connection may not exist yet, or no longer
        socket.socket.shutdown(connection.sock, socket.SHUT_RDWR)  # TLS shutdown is not safe from another thread


def _connect(asked: Object, container: Object, address: str, seconds: float) -> str:
    host, port = asked.get("host") or address, _port(asked["port"], container)
    if port is None:
        return f"couldn't find port: {asked['port']}"
    try:
        socket.create_connection((host, port), timeout=seconds).close()
    except TimeoutError:
        return f"dial tcp {host}:{port}: i/o timeout"
    except OSError as error:
        return f"dial tcp {host}:{port}: {_words(error)}"
    return ""


def _words(error: Exception) -> str:
    said = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    return f"connect: {said.lower()}" if isinstance(error, ConnectionRefusedError) else said


def _port(port: int | str, container: Object) -> int | None:
    """Resolve a port, which may be the name of one of the container's ports."""
    if str(port).isdecimal():
        return int(port)
    named = {one.get("name"): one["containerPort"] for one in container.get("ports", [])}
    return named.get(port)
