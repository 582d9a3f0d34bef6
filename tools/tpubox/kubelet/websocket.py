"""The server side of a WebSocket (RFC 6455), as far as `kubectl exec` needs one.

Use it from one thread: an OpenSSL connection cannot be read by one thread while another writes, and in Python 3.13.6
the second thread waits for the first (https://github.com/python/cpython/issues/137583).
"""

from __future__ import annotations

import base64
import hashlib
import select
import socket
import ssl
import struct

from tpubox.kubelet.door import Request

_GUID = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_CONTINUED, _BINARY, _CLOSE, _PING, _PONG = 0, 2, 8, 9, 10
_LARGEST_MESSAGE = 1 << 24
_PIECE = 1 << 16
_GOODBYE_SECONDS = 5.0


class WebSocket:
    def __init__(self, request: Request, protocol: str) -> None:
        """Complete the handshake."""
        key = request.headers.get("Sec-WebSocket-Key", "").encode()
        accept = base64.b64encode(hashlib.sha1(key + _GUID, usedforsecurity=False).digest()).decode()
        request.send_response(101)
        for name, value in (
            ("Upgrade", "websocket"),
            ("Connection", "Upgrade"),
            ("Sec-WebSocket-Accept", accept),
            ("Sec-WebSocket-Protocol", protocol),
        ):
            request.send_header(name, value)
        request.end_headers()
        request.close_connection = True
        self.open = True
        """True while the client may still send something."""
        self._connection: socket.socket = request.connection
        self._connection.settimeout(None)
        self._unread = bytearray()
        self._message = bytearray()

    def fileno(self) -> int:
        return self._connection.fileno()

    def send(self, data: bytes) -> None:
        self._send(_BINARY, data)

    def receive(self) -> list[bytes]:
        """Return the messages that have arrived, once there is something to read."""
        self._connection.settimeout(0)
        try:
            piece = self._connection.recv(_PIECE)  # more than a TLS record holds, so nothing stays buffered unseen
        except ssl.SSLWantReadError:  # an incomplete record, or one of TLS's own
            return []
        except OSError:
            piece = b""
        finally:
            self._connection.settimeout(None)
        self.open = bool(piece)
        self._unread += piece
        messages = []
        while self.open and (frame := self._frame()) is not None:
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
        self.open &= len(self._unread) + len(self._message) <= _LARGEST_MESSAGE
        return messages

    def close(self) -> None:
        """Send a close frame and wait for the client's, because unread data would be lost otherwise."""
        self._send(_CLOSE, struct.pack("!H", 1000))
        poll = select.poll()
        poll.register(self, select.POLLIN)
        while self.open and poll.poll(_GOODBYE_SECONDS * 1000):
            self.receive()

    def _frame(self) -> tuple[bool, int, bytes] | None:
        """Return whether the frame ends its message, its kind and its data; None if it is incomplete."""
        unread = self._unread
        if len(unread) < 2:
            return None
        size, start = unread[1] & 127, 2
        if size > 125:
            start = 4 if size == 126 else 10
            size = int.from_bytes(unread[2:start])
        mask = b""
        if unread[1] & 128:
            mask = bytes(unread[start : start + 4])
            start += 4
        if len(unread) < start + size:
            return None
        first, data = unread[0], bytes(unread[start : start + size])
        del unread[: start + size]
        if mask:
            key = (mask * (size // 4 + 1))[:size]
            data = (int.from_bytes(data) ^ int.from_bytes(key)).to_bytes(size)
        return bool(first & 128), first & 15, data

    def _send(self, kind: int, data: bytes) -> None:
        size = len(data)
        head = bytes([128 | kind])
        if size < 126:
            head += bytes([size])
        else:
            head += b"\x7e" + struct.pack("!H", size) if size < 1 << 16 else b"\x7f" + struct.pack("!Q", size)
        self._connection.sendall(head + data)
