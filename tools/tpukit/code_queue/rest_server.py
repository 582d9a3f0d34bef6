"""Server of the REST front end, in a thread, on a port that is bound before it is announced."""

from __future__ import annotations

import socket
import threading

from tpukit.code_queue.access import Access
from tpukit.code_queue.client import Client
from tpukit.core import resources
from tpukit.core.errors import Conflict, Invalid

LEAVE_SECONDS = 10.0


class Server:
    def __init__(self, listener: socket.socket, client: Client, access: Access, results: str) -> None:
        import uvicorn

        from tpukit.code_queue import rest

        config = uvicorn.Config(
            rest.app(client, access, results),
            log_level="error",
            access_log=False,
            server_header=False,
            timeout_graceful_shutdown=int(LEAVE_SECONDS / 2),
        )
        self.port: int = listener.getsockname()[1]
        self._server = uvicorn.Server(config)
        self._thread = threading.Thread(target=lambda: self._server.run(sockets=[listener]), name="rest", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop the server after pending responses are sent."""
        self._server.should_exit = True
        self._thread.join(LEAVE_SECONDS)


def start(client: Client, access: Access, results: str, *, port: int, bind: str) -> Server:
    """Start the server. Raises Conflict if the port is taken. Port 0 takes a free one; see `Server.port`."""
    family = socket.AF_INET6 if ":" in bind else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((bind, port))
        listener.listen(128)
    except OSError as error:
        listener.close()
        raise Conflict(
            f"{bind}:{port} cannot be served: {error.strerror}", hint="choose another port with --port"
        ) from error
    try:
        return Server(listener, client, access, results)
    except ImportError as error:
        listener.close()
        raise Invalid(
            f"the REST front end needs the package {error.name}", hint=resources.install_hint("rest")
        ) from error
