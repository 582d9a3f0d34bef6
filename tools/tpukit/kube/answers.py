"""Read responses of the API server: refusals as errors of tpukit, streams as lines."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import TYPE_CHECKING

from tpukit.core.errors import Conflict, Denied, Invalid, NotFound, TpukitError, Transient, Unauthenticated, seconds_of

if TYPE_CHECKING:
    from urllib3 import BaseHTTPResponse

LINE_BYTES = 64 << 10
"""Largest piece of a log line. Longer lines are split: a progress bar may print for days without ending its line."""
SIGN_IN = "sign in again: `gcloud auth login`, then `tpu cluster credentials`"
_ASK_FOR_ROLE = (
    "ask an administrator of the cluster for a role that allows it; `tpu team add --member` adds members to a team"
)


class Expired(Transient):
    """Error for a version or list page that the server no longer remembers: list again."""


def error(status: int, content: bytes, asked: str, retry_after: str = "") -> TpukitError:
    """Return the error for a refusal of the API server. `retry_after` is the header of that name."""
    details: object = None
    try:
        said = json.loads(content)
        message = str((said.get("message") if isinstance(said, dict) else "") or said)
        details = said.get("details") if isinstance(said, dict) else None
    except ValueError:
        message = content.decode(errors="replace").strip()[:500] or asked
    if status in (400, 413, 415, 422):
        return Invalid(message)
    if status == 401:
        return Unauthenticated(f"{message}: not signed in to the cluster", hint=SIGN_IN)
    if status == 403:
        return Denied(message, hint=_ASK_FOR_ROLE)
    if status == 404:
        return NotFound(message)
    if status == 409:
        return Conflict(message)
    if status == 410:
        return Expired(message)
    pause = retry_after or (str(details.get("retryAfterSeconds") or "") if isinstance(details, dict) else "")
    return Transient(f"{message} ({status})", retry_after=seconds_of(pause))


def lines(answer: BaseHTTPResponse) -> Iterator[bytes]:
    """Yield each line of a stream as it arrives, of any length."""
    parts: list[bytes] = []
    for chunk in answer.stream(decode_content=True):
        *ended, rest = chunk.split(b"\n")
        for line in ended:
            parts.append(line)
            yield b"".join(parts)
            parts.clear()
        if rest:
            parts.append(rest)
    if parts:
        yield b"".join(parts)


def log_lines(answer: BaseHTTPResponse, *, timestamps: bool) -> Iterator[str]:
    """Yield the lines of a log. A line longer than LINE_BYTES comes in pieces, each with the time of the line."""
    rest = b""
    for chunk in answer.stream(decode_content=True):
        *ended, rest = (rest + chunk).split(b"\n")
        for line in ended:
            for piece in _pieces(line, timestamps):
                yield piece.decode(errors="replace")
        if len(rest) > LINE_BYTES:
            *full, rest = _pieces(rest, timestamps)
            for piece in full:
                yield piece.decode(errors="replace")
    for piece in _pieces(rest, timestamps) if rest else ():
        yield piece.decode(errors="replace")


def _pieces(line: bytes, timestamps: bool) -> Iterator[bytes]:
    if len(line) <= LINE_BYTES:
        yield line
        return
    stamp = _stamp(line) if timestamps else b""
    text = line[len(stamp) :]
    first, room = 0, LINE_BYTES - len(stamp)
    while len(text) - first > room:
        last = first + room
        while last > first + room - 4 and text[last] & 0xC0 == 0x80:  # within a letter
            last -= 1
        yield stamp + text[first:last]
        first = last
    yield stamp + text[first:]


def _stamp(line: bytes) -> bytes:
    """Return the time before a line, with the blank after it."""
    end = line.find(b" ", 0, 40)
    return line[: end + 1]
