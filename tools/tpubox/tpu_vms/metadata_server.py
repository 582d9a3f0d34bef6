"""The metadata server of a host, from which programs learn about their machine.

https://cloud.google.com/compute/docs/metadata/querying-metadata has the rules: a mandatory header, folders that end in
a slash, recursive and waiting requests, guest attributes that programs may write.

It issues tokens, so on a shared machine it only serves programs of its own user, and no web pages.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import inspect
import json
import re
import socket
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, unquote, urlsplit

from tpubox.box import callers

Tree = Mapping[str, Any]
ROOT = "/computeMetadata/v1/"
GUEST = "instance/guest-attributes/"
NAMES = ("metadata.google.internal", "metadata")
LONGEST_VALUE = 256 * 1024
_FLAVOR = {"Metadata-Flavor": "Google", "Server": "Metadata Server for VM"}
_VERBATIM = ("attributes", "guest-attributes", "service-accounts")
"""Folders with names chosen by the user: a recursive response keeps them, and turns all others into camelCase."""
_MINTED = re.compile(r"instance/service-accounts/([^/]+)/(token|identity)")


@dataclass(frozen=True, slots=True)
class Reply:
    status: int
    content: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)


class MetadataServer:
    """A server of one tree. Code that changes the tree calls `changed`, which completes waiting requests."""

    def __init__(
        self,
        tree: Callable[[], Any],
        write_guest: Callable[[str, str | None], None] | None,
        mint: Callable[[str, Mapping[str, str]], Any],
        doors: Mapping[str, Callable[[bytes], str]],
    ) -> None:
        """Initialize; `tree` and `mint` may be coroutines.

        `mint` returns a token, None, or a reply to send instead.
        """
        self._tree = tree
        self._write_guest = write_guest
        self._mint = mint
        self._doors = doors  # our own endpoints, beside Google's: they return an error message, or an empty text
        self._changed = asyncio.Event()
        self._server: asyncio.Server | None = None
        self._open: set[asyncio.StreamWriter] = set()

    async def listen(self, listener: socket.socket) -> None:
        self._server = await asyncio.start_server(self._serve, sock=listener)

    def changed(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def stop_listening(self) -> None:
        if self._server:
            self._server.close()

    def cut(self) -> None:
        for writer in list(self._open):
            writer.transport.abort()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        own, caller = writer.get_extra_info("sockname"), writer.get_extra_info("peername")
        if not callers.is_ours(caller, own):
            writer.close()
            return
        self._open.add(writer)
        try:
            while request := await _request(reader):
                method, target, headers, body = request
                page = callers.is_from_a_page(headers, own, NAMES)
                reply = Reply(403) if page else await self.answer(method, target, headers, body)
                lines = {**_FLAVOR, "Content-Type": "application/text", **reply.headers}
                lines["Content-Length"] = str(len(reply.content))
                head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
                content = b"" if method == "HEAD" else reply.content
                writer.write(f"HTTP/1.1 {reply.status} .\r\n{head}\r\n".encode() + content)
                await writer.drain()
                if headers.get("connection", "").lower() == "close":
                    return
        except (OSError, ValueError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            return
        finally:
            self._open.discard(writer)
            with suppress(OSError):
                writer.close()

    async def answer(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> Reply:
        parts = urlsplit(target)
        path, query = unquote(parts.path), {name: values[-1] for name, values in parse_qs(parts.query).items()}
        if path == "/":
            return Reply(200, b"computeMetadata/\n")
        if headers.get("metadata-flavor") != "Google" or "x-forwarded-for" in headers:
            return Reply(403, b"Missing Metadata-Flavor:Google header.\n")
        if door := self._doors.get(path):
            complaint = door(body)
            return Reply(400 if complaint else 200, complaint.encode())
        if not path.startswith(ROOT):
            return Reply(404)
        path = path.removeprefix(ROOT)
        if path.startswith(GUEST) and method in ("PUT", "DELETE") and self._write_guest:
            return self._write(self._write_guest, method, path.removeprefix(GUEST), body)
        if method not in ("GET", "HEAD"):
            return Reply(405)
        if minted := _MINTED.fullmatch(path):
            return await self._minted(minted[1], minted[2], query)
        return await self._read(path, query)

    def _write(self, write: Callable[[str, str | None], None], method: str, name: str, body: bytes) -> Reply:
        if not re.fullmatch(r"[A-Za-z0-9._-]+/[A-Za-z0-9._-]+", name) or len(body) > LONGEST_VALUE:
            return Reply(400, b"A guest attribute is NAMESPACE/KEY with a value of 256 KiB at most.\n")
        write(name, body.decode(errors="replace") if method == "PUT" else None)
        return Reply(200)

    async def _minted(self, account: str, kind: str, query: Mapping[str, str]) -> Reply:
        accounts = (await _awaited(self._tree())).get("instance", {}).get("service-accounts")
        if accounts is not None and account not in accounts:  # None: unknown for now, and `mint` gives the reason
            return Reply(404)
        made = await _awaited(self._mint(kind, query))
        if isinstance(made, Reply):
            return made
        if made is None:
            return Reply(400 if kind == "identity" else 404, b"non-empty audience parameter required\n")
        if isinstance(made, str):
            return Reply(200, made.encode(), {"Content-Type": "text/html"})
        return Reply(200, json.dumps(made).encode(), {"Content-Type": "application/json"})

    async def _read(self, path: str, query: Mapping[str, str]) -> Reply:
        if query.get("wait_for_change", "").lower() != "true":
            return _shown(await _awaited(self._tree()), path, query)
        seconds = float(query.get("timeout_sec") or 0) or None
        reply = _shown(await _awaited(self._tree()), path, query)
        before = query.get("last_etag") or reply.headers.get("ETag")
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while reply.headers.get("ETag") == before:
                    await self._changed.wait()
                    reply = _shown(await _awaited(self._tree()), path, query)
        return reply


def identity_token(audience: str, email: str) -> str:
    """Return a token of the right form. Its signature cannot be verified: there are no Google certificates here."""
    now = int(time.time())
    claims = {"aud": audience, "email": email, "email_verified": True, "iat": now, "exp": now + 3600}
    claims |= {"iss": "https://accounts.google.com", "sub": email}
    parts = [{"alg": "RS256", "typ": "JWT"}, claims]
    text = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join((*text, "c2FuZGJveA"))


def access_token(value: str, expires: float) -> dict[str, Any]:
    return {"access_token": value, "expires_in": int(expires - time.time()), "token_type": "Bearer"}


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value


def _shown(tree: Tree, path: str, query: Mapping[str, str]) -> Reply:
    value: Any = tree
    for part in path.split("/"):
        if part:
            value = value.get(part) if isinstance(value, Mapping) else None
        if value is None:
            return Reply(404)
    etag = hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]
    headers = {"ETag": etag}
    if not isinstance(value, Mapping):
        if query.get("alt") == "json":
            return Reply(200, json.dumps(value).encode(), {**headers, "Content-Type": "application/json"})
        return Reply(200, _text(value).encode(), headers)
    if path and not path.endswith("/"):
        return Reply(301, headers={**headers, "Location": f"{ROOT}{path}/"})
    if query.get("recursive", "").lower() != "true":
        names = "".join(f"{name}/\n" if isinstance(inner, Mapping) else f"{name}\n" for name, inner in value.items())
        return Reply(200, names.encode(), headers)
    if query.get("alt") == "text":
        return Reply(200, "".join(_lines(value)).encode(), headers)
    last = path.rstrip("/").rpartition("/")[2]
    recursive = _recursive(value, verbatim=last in _VERBATIM or "/attributes/" in f"/{path}")
    return Reply(200, json.dumps(recursive).encode(), {**headers, "Content-Type": "application/json"})


def _text(value: Any) -> str:
    return "\n".join(map(str, value)) if isinstance(value, list) else str(value)


def _lines(tree: Tree, above: str = "") -> list[str]:
    lines = []
    for name, value in tree.items():
        lines += _lines(value, f"{above}{name}/") if isinstance(value, Mapping) else [f"{above}{name} {_text(value)}\n"]
    return lines


def _recursive(tree: Tree, *, verbatim: bool = False) -> Any:
    if tree and all(name.isdigit() for name in tree):
        return [_recursive(value) if isinstance(value, Mapping) else value for value in tree.values()]
    spelt = {}
    for name, value in tree.items():
        key = name if verbatim else re.sub(r"-([a-z])", lambda letter: letter[1].upper(), name)
        below = name in _VERBATIM or (verbatim and "service-accounts" not in tree and "email" not in value)
        spelt[key] = _recursive(value, verbatim=below) if isinstance(value, Mapping) else value
    return spelt


async def _request(reader: asyncio.StreamReader) -> tuple[str, str, dict[str, str], bytes] | None:
    head = await reader.readuntil(b"\r\n\r\n") if not reader.at_eof() else b""
    if not head:
        return None
    first, *lines = head.decode("latin-1").rstrip().split("\r\n")
    method, target, _ = first.split(" ", 2)
    headers = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    body = await reader.readexactly(int(headers.get("content-length") or 0))
    return method, target, headers, body
