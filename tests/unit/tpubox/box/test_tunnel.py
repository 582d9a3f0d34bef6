"""Access to a sandbox's Services, and to its releases."""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import pytest

from tpubox.box import certificates, downloads, tunnel
from tpubox.box.folder import HOST


async def echo() -> tuple[asyncio.Server, int]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while chunk := await reader.read(1 << 16):
            writer.write(chunk.upper())
            await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, HOST, 0)
    return server, server.sockets[0].getsockname()[1]


async def free_port() -> int:
    server = await asyncio.start_server(lambda reader, writer: None, HOST, 0)
    port = server.sockets[0].getsockname()[1]
    server.close()
    await server.wait_closed()
    return int(port)


@asynccontextmanager
async def serving(port: int, *words: object) -> AsyncIterator[None]:
    task = asyncio.create_task(tunnel.serve(port, *words))
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def connected(port: int, **tls: object) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect as soon as the port is open."""
    for _ in range(200):
        try:
            return await asyncio.open_connection(HOST, port, **tls)
        except ConnectionRefusedError:
            await asyncio.sleep(0.01)
    raise AssertionError("nobody listens")


async def asked(reader, writer, line: bytes) -> bytes:
    writer.write(line + b"\r\nHost: x\r\n\r\n")
    return (await reader.readuntil(b"\r\n\r\n")).split(b"\r\n")[0]


def run(story) -> None:
    asyncio.run(asyncio.wait_for(story, 60))


def test_service_leads_to_the_process_behind_it_both_ways_until_one_ends():
    async def story():
        server, far = await echo()
        port = await free_port()
        async with server, serving(port, {"10.96.0.7:443": far}.get):
            reader, writer = await connected(port)
            said = await asked(reader, writer, b"CONNECT 10.96.0.7:443 HTTP/1.1")
            assert said == b"HTTP/1.1 200 Connection established"
            writer.write(b"hello" * 100_000)
            writer.write_eof()
            assert await reader.read() == b"HELLO" * 100_000
            writer.close()

    run(story())


@pytest.mark.parametrize(
    ("line", "status"),
    [
        (b"CONNECT example.com:443 HTTP/1.1", b"502"),
        (b"GET http://example.com/ HTTP/1.1", b"502"),
        (b"CONNECT 10.96.0.8:443 HTTP/1.1", b"503"),
    ],
)
def test_what_nothing_stands_for_is_refused_at_once(line, status):
    async def story():
        port, nobody = await free_port(), await free_port()
        async with serving(port, {"10.96.0.8:443": nobody}.get):
            reader, writer = await connected(port)
            assert (await asked(reader, writer, line)).split()[1] == status
            assert await reader.read() == b""
            writer.close()

    run(story())


def test_caller_without_a_certificate_is_led_nowhere(tmp_path):
    keys = certificates.pair(tmp_path / "keys")

    def trust() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(keys / "ca.crt"))

    def strange(port: int) -> bytes:
        with (
            suppress(ssl.SSLError, ConnectionError),
            socket.create_connection((HOST, port)) as plain,
            trust().wrap_socket(plain, server_hostname=HOST) as caller,
        ):
            caller.sendall(b"CONNECT 127.0.0.1:1 HTTP/1.1\r\n\r\n")
            return caller.recv(1)
        return b""

    async def story():
        server, far = await echo()
        port = await free_port()
        async with server, serving(port, lambda target: far, tunnel.known_callers(keys)):
            ours = trust()
            ours.load_cert_chain(keys / "tls.crt", keys / "tls.key")
            reader, writer = await connected(port, ssl=ours, server_hostname=HOST)
            assert (await asked(reader, writer, b"CONNECT 127.0.0.1:1 HTTP/1.1")).split()[1] == b"200"
            writer.write(b"x")
            assert await reader.read(1) == b"X"
            writer.close()
            assert await asyncio.to_thread(strange, port) == b""

    run(story())


def test_release_is_downloaded_by_its_public_name_and_no_other(tmp_path):
    keys = certificates.pair(tmp_path / "keys", [downloads.NAME])

    async def get(port: int, path: str) -> bytes:
        trust = ssl.create_default_context(cafile=str(keys / "ca.crt"))
        reader, writer = await asyncio.open_connection(HOST, port, ssl=trust, server_hostname=downloads.NAME)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: {downloads.NAME}\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        return answer

    async def story():
        server, port = await downloads.start(keys, {"/a/manifests.yaml": b"kind: A"})
        async with server:
            assert (await get(port, "/a/manifests.yaml")).endswith(b"\r\n\r\nkind: A")
            assert (await get(port, "/b/manifests.yaml")).startswith(b"HTTP/1.1 404")

    run(story())
