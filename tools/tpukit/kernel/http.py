"""Serve health, readiness and metrics on loopback."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Protocol

from tpukit.core.errors import Conflict, Transient

LOOPBACK = "127.0.0.1"
PORT = 9464
"""Port of Prometheus exporters of this kind.

See https://github.com/prometheus/prometheus/wiki/Default-port-allocations.
"""
REQUEST_SECONDS = 10.0
CHECK_SECONDS = 5.0
PROBES = {"live": "/healthz", "ready": "/readyz"}


class Probed(Protocol):
    def alive(self) -> bool: ...

    def ready(self) -> bool: ...

    def hanging(self) -> Mapping[str, float]:
        """Return groups and keys whose calls have not returned, with the seconds since."""


class Counted(Protocol):
    @property
    def content_type(self) -> str: ...

    def text(self) -> str: ...


def start(service: Probed, metrics: Counted, port: int, host: str = LOOPBACK) -> ThreadingHTTPServer:
    """Serve in a background thread. Port 0 picks a free one, which the server knows.

    Raises:
        Conflict: The port is taken.
    """

    class Handler(BaseHTTPRequestHandler):
        timeout = REQUEST_SECONDS

        def do_GET(self) -> None:
            path = self.path.partition("?")[0]
            if path == "/healthz":
                slow = "".join(f"no response from {name} for {age:.0f} s\n" for name, age in service.hanging().items())
                self._answer(service.alive(), f"ok\n{slow}", f"rounds have stopped\n{slow}")
            elif path == "/readyz":
                self._answer(service.ready(), "ready\n", "the store is unreachable, or no round succeeded recently\n")
            elif path == "/metrics":
                self._send(200, metrics.text(), metrics.content_type)
            else:
                self._send(404, "not found; the paths are /healthz, /readyz and /metrics\n")

        def _answer(self, well: bool, yes: str, no: str) -> None:
            self._send(200 if well else 503, yes if well else no)

        def _send(self, status: int, text: str, content: str = "text/plain; charset=utf-8") -> None:
            body = text.encode()
            self.send_response(status)
            self.send_header("Content-Type", content)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
            """Drop the log of frequent scrapes."""

    try:
        server = _Server((host, port), Handler)
    except OSError as error:
        raise Conflict(
            f"health and metrics cannot be served on {host}:{port}: {error.strerror}",
            hint="choose another port with --port, or pass --no-http",
        ) from error
    threading.Thread(target=server.serve_forever, name="http", daemon=True).start()
    return server


def check(probe: str, port: int, program: str = "tpu serve") -> str:
    """Probe the service on this machine.

    Raises:
        Transient: The service is unreachable or unhealthy.
    """
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=CHECK_SECONDS)
    try:
        connection.request("GET", PROBES[probe])
        answer = connection.getresponse()
        text = answer.read().decode().strip()
    except (OSError, http.client.HTTPException) as error:
        raise Transient(f"no `{program}` answers on {LOOPBACK}:{port}: {error}") from error
    finally:
        connection.close()
    if answer.status != 200:
        raise Transient(f"{program} is not {probe}: {text}")
    return text


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Drop errors of clients that disconnected early."""
