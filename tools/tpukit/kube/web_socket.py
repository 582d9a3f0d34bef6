"""Client side of a WebSocket (RFC 6455), as far as the API server's `exec` needs it. For one thread."""

from __future__ import annotations

import base64
import os
import socket
import ssl
import struct
from collections.abc import Mapping
from contextlib import suppress

from tpukit.core.errors import Transient

_CONTINUED, _BINARY, _CLOSE, _PING, _PONG = 0, 2, 8, 9, 10
_LARGEST_HEAD = 1 << 16
_PIECE = 1 << 16
_MASKED = 128


class Refused(Exception):
    """Response of a server that did not open a WebSocket."""

    def __init__(self, status: int, content: bytes) -> None:
        super().__init__(status)
        self.status, self.content = status, content


class WebSocket:
    def __init__(self, connection: socket.socket, host: str, path: str, headers: Mapping[str, str]) -> None:
        """Shake hands over `connection`, which `close` ends. Raise Refused with the server's response."""
        key = base64.b64encode(os.urandom(16)).decode()
        asked = {
            "Host": host,
            "Upgrade": "websocket",
            "Connection": "Upgrade",
            "Sec-WebSocket-Key": key,
            "Sec-WebSocket-Version": "13",
            **headers,
        }
        lines = [f"GET {path} HTTP/1.1", *(f"{name}: {value}" for name, value in asked.items()), "", ""]
        connection.sendall("\r\n".join(lines).encode())
        self.open = True
        """True while the server may still send data."""
        self._connection = connection
        self._unread = bytearray()
        self._message = bytearray()
        try:
            self._shake_hands()
        except BaseException:
            connection.close()
            raise

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, data: bytes) -> None:
        self._send(_BINARY, data)

    def received(self) -> list[bytes]:
        """Return the messages that have arrived complete. Read once, if data is available."""
        self._connection.settimeout(0)
        try:
            piece = self._connection.recv(_PIECE)  # larger than a TLS record, so that no data stays unread
        except (BlockingIOError, ssl.SSLWantReadError):
            return self._messages()
        except OSError:
            piece = b""
        finally:
            self._connection.settimeout(None)
        self.open = bool(piece)
        self._unread += piece
        return self._messages()

    def close(self) -> None:
        self._send(_CLOSE, struct.pack("!H", 1000))
        self._connection.close()

    def _shake_hands(self) -> None:
        while b"\r\n\r\n" not in self._unread:
            piece = self._connection.recv(_PIECE)
            if not piece or len(self._unread) > _LARGEST_HEAD:
                raise Transient("the API server closed the connection before it responded")
            self._unread += piece
        head, _, rest = bytes(self._unread).partition(b"\r\n\r\n")
        status = int(head.split(b" ", 2)[1])
        if status != 101:
            raise Refused(status, rest + self._rest_of(head, len(rest)))
        self._unread = bytearray(rest)

    def _rest_of(self, head: bytes, have: int) -> bytes:
        """Return the rest of a response with a known length."""
        lines = head.decode(errors="replace").lower().split("\r\n")
        length = next((int(line.split(":")[1]) for line in lines if line.startswith("content-length:")), have)
        rest = b""
        while have + len(rest) < min(length, _LARGEST_HEAD) and (piece := self._connection.recv(_PIECE)):
            rest += piece
        return rest

    def _messages(self) -> list[bytes]:
        messages = []
        while (frame := self._frame()) is not None:
            final, kind, data = frame
            if kind == _CLOSE:
                self.open = False
            elif kind == _PING:
                self._send(_PONG, data)
            elif kind in (_BINARY, _CONTINUED):
                self._message += data
                if final:
                    messages.append(bytes(self._message))
                    self._message.clear()
        return messages

    def _frame(self) -> tuple[bool, int, bytes] | None:
        """Return the next frame as (final, kind, data); None if it is incomplete."""
        unread = self._unread
        if len(unread) < 2:
            return None
        size, start = unread[1] & 127, 2
        if size > 125:
            start = 4 if size == 126 else 10
            size = int.from_bytes(unread[2:start], "big") if len(unread) >= start else len(unread)
        if len(unread) < start + size:
            return None
        first, data = unread[0], bytes(unread[start : start + size])
        del unread[: start + size]
        return bool(first & 128), first & 15, data

    def _send(self, kind: int, data: bytes) -> None:
        """Send a masked frame. `received` tells of a lost connection, after what arrived before."""
        size, mask = len(data), os.urandom(4)
        head = bytes([128 | kind])
        if size < 126:
            head += bytes([_MASKED | size])
        elif size < 1 << 16:
            head += bytes([_MASKED | 126]) + struct.pack("!H", size)
        else:
            head += bytes([_MASKED | 127]) + struct.pack("!Q", size)
        key = (mask * (size // 4 + 1))[:size]
        masked = (int.from_bytes(data, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
        with suppress(OSError):
            self._connection.sendall(head + mask + masked)
