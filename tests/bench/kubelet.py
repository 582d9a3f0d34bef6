"""Logs of simulated pods: each has just reported its next step, as training pods do."""

from __future__ import annotations

import json
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path


@contextmanager
def serve(certificates: Path) -> Iterator[int]:
    """Serve logs and yield the port. The API server requests logs here for every node that has this port."""
    server = _Server(("127.0.0.1", 0), _Handler)
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trusted.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    server.socket = trusted.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        now = time.time()
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(now)) + f".{int(now % 1 * 1e9):09d}Z"
        report = json.dumps({"step": int(now), "loss": 1.0, "steps_per_s": 1.0, "time": now})
        body = f"{stamp} tpukit-progress {report}\n".encode()
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *arguments: object) -> None:  # noqa: A002
        """Discard log messages."""


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore errors, because connections are not reused."""
