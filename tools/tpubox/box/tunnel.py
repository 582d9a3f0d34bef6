"""The proxy from the API server into the cluster, and from the cluster's tools to releases.

The API server reaches Services as GKE's does, through a proxy with CONNECT
(https://kubernetes.io/docs/tasks/extend-kubernetes/setup-konnectivity): the address of a Service leads to the process
that replaces its pods, and an address of this machine, such as the node agent's, leads there. Host names lead to the
sandbox's copies of their content, or nowhere: no request leaves the machine.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Callable
from pathlib import Path

from tpubox.box.folder import HOST

Route = Callable[[str], int | None]
"""A function from HOST:PORT to the local port that serves it; None if there is none."""

_LONGEST_REQUEST = 16 << 10


def known_callers(certificates: Path) -> ssl.SSLContext:
    """Return a TLS context that requires a certificate of this authority.

    Its clients can reach any port of this machine.
    """
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(certificates / "ca.crt"))
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")
    context.verify_mode = ssl.CERT_REQUIRED
    return context


async def serve(port: int, route: Route, keys: ssl.SSLContext | None = None) -> None:
    """Serve until stopped."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            await _answer(reader, writer, route)
        writer.close()

    server = await asyncio.start_server(answer, HOST, port, limit=_LONGEST_REQUEST, ssl=keys)
    await server.serve_forever()


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, route: Route) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    method, target, *_ = request.split(b"\r\n", 1)[0].decode("latin-1").split(" ")
    port = route(target) if method == "CONNECT" else None
    if port is None:
        writer.write(b"HTTP/1.1 502 Bad Gateway\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        return
    try:
        far_reader, far_writer = await asyncio.open_connection(HOST, port)
    except OSError:
        writer.write(b"HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
        await writer.drain()
        return
    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
    try:
        await asyncio.gather(_pump(reader, far_writer), _pump(far_reader, writer))
    finally:
        far_writer.close()


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Copy one direction until its end, which is passed on."""
    try:
        while chunk := await reader.read(64 << 10):
            writer.write(chunk)
            await writer.drain()
    finally:
        with contextlib.suppress(OSError):
            if writer.can_write_eof():
                writer.write_eof()
            else:  # TLS cannot close one direction
                writer.close()
