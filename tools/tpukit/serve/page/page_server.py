"""A server for the page, in a thread, on loopback."""

from __future__ import annotations

import socket
import threading
from pathlib import Path

from tpukit.core import resources
from tpukit.core.errors import Conflict, Invalid
from tpukit.kernel.http import LOOPBACK
from tpukit.serve.page import sessions
from tpukit.serve.page.sessions import Sessions
from tpukit.serve.page.site import Site

PORT = 9465
FILE = "page.json"
LEAVE_SECONDS = 1


class Server:
    def __init__(self, listener: socket.socket, site: Site, state: Path) -> None:
        import uvicorn

        from tpukit.serve.page import app

        self.port: int = listener.getsockname()[1]
        self.sessions = Sessions(site.clock.monotonic)
        config = uvicorn.Config(
            app.build(site, self.sessions, self.port),
            log_level="error",
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=LEAVE_SECONDS,
        )
        self._server = uvicorn.Server(config)
        sessions.write(state / FILE, self.port, self.sessions.token)
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[listener]), name="page", daemon=True)
        self._thread.start()

    def link(self) -> str:
        """Return an address that opens the page once."""
        return f"http://{LOOPBACK}:{self.port}/enter?code={self.sessions.link(self.sessions.token)}"

    def stop(self) -> None:
        self._server.should_exit = True
        self._thread.join(LEAVE_SECONDS)


def start(site: Site, state: Path, port: int) -> Server:
    """Start the server; port 0 takes any. Raise Conflict if the port is taken, Invalid if a package is missing."""
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((LOOPBACK, port))
        listener.listen(512)
    except OSError as error:
        listener.close()
        raise Conflict(
            f"the page cannot be served on {LOOPBACK}:{port}: {error.strerror}",
            hint="choose another port with --page-port",
        ) from error
    try:
        return Server(listener, site, state)
    except OSError as error:
        listener.close()
        raise Conflict(f"{state / FILE} cannot be written: {error.strerror}") from error
    except ImportError as error:
        listener.close()
        raise Invalid(f"the page needs the package {error.name}", hint=resources.install_hint("page")) from error
