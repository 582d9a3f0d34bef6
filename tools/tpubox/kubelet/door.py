"""The HTTPS server of the agent on loopback, for the API server (logs, exec) and for commands (pools, faults).

It accepts the token, and client certificates of the sandbox's own authority, which the API server presents.
"""

from __future__ import annotations

import hmac
import json
import logging
import ssl
from collections.abc import Callable, Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, cast
from urllib.parse import parse_qsl, unquote, urlsplit

from tpukit.core.errors import Conflict, Denied, Invalid, NotFound, TpukitError

_STATUS: Mapping[type[TpukitError], int] = {Invalid: 400, Denied: 403, NotFound: 404, Conflict: 409}
_LARGEST = 1 << 20
_log = logging.getLogger(__name__)


class Request(BaseHTTPRequestHandler):
    """One request. Routes answer with JSON or a stream of bytes, or handle the connection themselves."""

    protocol_version = "HTTP/1.1"
    timeout = 60.0
    words: tuple[str, ...]
    query: Mapping[str, str]
    queries: tuple[tuple[str, str], ...]

    def body(self) -> dict[str, Any]:
        size = int(self.headers.get("Content-Length") or 0)
        if size > _LARGEST:
            raise Invalid("request body too large")
        try:
            found = json.loads(self.rfile.read(size) or b"{}")
        except ValueError as error:
            raise Invalid(f"the body is not JSON: {error}") from error
        if not isinstance(found, dict):
            raise Invalid("the body is not a JSON object")
        return found

    def answer(self, value: object, status: int = 200) -> None:
        content = json.dumps(value).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def refuse(self, status: int, text: str) -> None:
        content = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(content)))
        self.send_header("Connection", "close")
        self.end_headers()
        self.wfile.write(content)

    def stream(self, pieces: Iterator[bytes]) -> None:
        """Send the pieces as they arrive, until the client disconnects."""
        self.send_response(200)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for piece in pieces:
            if piece:
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                self.wfile.flush()
        self.wfile.write(b"0\r\n\r\n")

    def do_GET(self) -> None:
        self._serve()

    do_POST = do_DELETE = do_GET  # noqa: N815

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002
        _log.debug(format, *args)

    def _serve(self) -> None:
        server = cast("Server", self.server)
        parts = urlsplit(self.path)
        self.words = tuple(unquote(word) for word in parts.path.strip("/").split("/"))
        self.queries = tuple(parse_qsl(parts.query, keep_blank_values=True))
        self.query = dict(self.queries)
        try:
            if not self._known(server):
                self.refuse(401, "the request lacks the sandbox's token")
            elif route := server.routes.get((self.command, self.words[0])):
                route(self)
            else:
                self.refuse(404, f"not found: {parts.path}")
        except TpukitError as error:
            self.refuse(_STATUS.get(type(error), 503), str(error))
        except (BrokenPipeError, ConnectionResetError, ssl.SSLError, TimeoutError):
            self.close_connection = True

    def _known(self, server: Server) -> bool:
        shown = self.headers.get("Authorization", "").removeprefix("Bearer ")
        if hmac.compare_digest(shown.encode(), server.token.encode()):
            return True
        return bool(cast("ssl.SSLSocket", self.connection).getpeercert())


Route = Callable[[Request], None]


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(
        self, address: tuple[str, int], routes: Mapping[tuple[str, str], Route], token: str, keys: Path
    ) -> None:
        """Take `routes` by method and first word of the path.

        `keys` holds tls.crt, tls.key and the authority's ca.crt.
        """
        self.routes = routes
        self.token = token
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(keys / "tls.crt", keys / "tls.key")
        context.load_verify_locations(keys / "ca.crt")
        context.verify_mode = ssl.CERT_OPTIONAL
        super().__init__(address, Request)
        # Each connection's thread does the handshake, so that a slow client does not block others.
        self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def handle_error(self, request: object, client_address: object) -> None:
        _log.debug("a connection failed", exc_info=True)
