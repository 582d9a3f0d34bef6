"""An emulation of github.com that serves the manifests of the releases that a sandbox can run."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from pathlib import Path

from tpubox.box.folder import HOST

NAME = "github.com"


async def start(certificates: Path, files: Mapping[str, bytes], port: int = 0) -> tuple[asyncio.Server, int]:
    """Serve files by their path; return the server and its port (0 selects a free one)."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates / "tls.crt", certificates / "tls.key")

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            request = await reader.readuntil(b"\r\n\r\n")
            path = request.split(b" ", 2)[1].decode("latin-1")
            body = files.get(path, b"Not Found")
            status = "200 OK" if path in files else "404 Not Found"
            head = f"HTTP/1.1 {status}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
            writer.write(head.encode() + body)
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, port, ssl=context)
    return server, int(server.sockets[0].getsockname()[1])
