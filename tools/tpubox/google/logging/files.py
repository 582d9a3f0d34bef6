"""Reader of container output in the order of time, forwards or backwards, from any time on.

The lines of a file are assumed to be in that order, because their host stamped them one after the other. Files are read
in pieces; a log is never held as a whole.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tpubox.google.wire.settings import Log

MAX_BYTES = 256 << 10
"""Largest size of an entry in Cloud Logging (https://cloud.google.com/logging/quotas).

Continuing a longer line in another entry is a guess.
"""
STAMP = len("2026-01-31T12:00:00.123456789Z")
_PART_BYTES = 20 << 10  # more than the longest line of a log file
_PIECE_BYTES = 256 << 10


@dataclass(frozen=True, slots=True)
class Line:
    """A line that a container printed, with its offset in the file."""

    at: str
    stream: str
    offset: int
    text: str


def forwards(log: Log, first: str, last: str) -> Iterator[Line]:
    """Yield the lines between two times, both included; an empty time is no bound."""
    for line in _lines(log, first):
        if last and line.at > last:
            return
        yield line


def backwards(log: Log, first: str, last: str) -> Iterator[Line]:
    """Yield the same lines, newest first."""
    places = [(line.at, line.offset) for line in forwards(log, first, last)]
    for at, offset in reversed(places):
        yield from (line for line in _take_one(log, offset) if line.at == at)


def _take_one(log: Log, offset: int) -> Iterator[Line]:
    for line in _joined(_raw(log, offset)):
        yield line
        return


def _lines(log: Log, first: str) -> Iterator[Line]:
    return _joined(_raw(log, _start(log, first) if first else 0))


def _joined(parts: Iterator[tuple[int, bytes]]) -> Iterator[Line]:
    """Join lines that the runtime split into parts."""
    begun: tuple[int, bytes, bytes] | None = None
    text = b""
    for offset, part in parts:
        at, stream, tag, rest = (part.split(b" ", 3) + [b""] * 4)[:4]
        if len(at) != STAMP:
            continue  # half a line, left by a killed writer
        begun = begun or (offset, at, stream)
        text += rest
        if tag == b"P" and len(text) < MAX_BYTES:
            continue
        yield _line(begun, text)
        begun, text = None, b""
    if begun:
        yield _line(begun, text)


def _line(begun: tuple[int, bytes, bytes], text: bytes) -> Line:
    offset, at, stream = begun
    return Line(at.decode(errors="replace"), stream.decode(errors="replace"), offset, text.decode(errors="replace"))


def _raw(log: Log, offset: int) -> Iterator[tuple[int, bytes]]:
    """Yield whole lines with their offsets. The file is open only while a piece is read: there may be thousands."""
    while True:
        piece = b""
        with suppress(FileNotFoundError), _open(log) as file:
            file.seek(offset)
            piece = file.read(_PIECE_BYTES)
        end = piece.rfind(b"\n") + 1
        if not end:
            return
        for line in piece[: end - 1].split(b"\n"):
            yield offset, line
            offset += len(line) + 1


def _start(log: Log, first: str) -> int:
    """Return the offset of the first line at or after `first` that does not continue an older one."""
    wanted = first.encode()
    try:
        with _open(log) as file:
            low, high = 0, file.seek(0, 2)
            while low < high:
                middle = (low + high) // 2
                begin = _line_start(file, middle)
                file.seek(begin)
                line = file.readline(_PART_BYTES)
                if line[:STAMP] < wanted:
                    low = max(begin + len(line), low + 1)
                else:
                    high = begin
            while low and _tag_before(file, low) == b"P":
                file.seek(low)
                line = file.readline(_PART_BYTES)
                if not line:
                    return low
                low += len(line)
            return low
    except FileNotFoundError:
        return 0


def _line_start(file: BinaryIO, offset: int) -> int:
    begin = max(0, offset - _PART_BYTES)
    file.seek(begin)
    before = file.read(offset - begin).rfind(b"\n")
    return begin + before + 1


def _tag_before(file: BinaryIO, offset: int) -> bytes:
    file.seek(_line_start(file, offset - 1))
    return (file.readline(_PART_BYTES).split(b" ", 3) + [b""] * 4)[2]


def _open(log: Log) -> BinaryIO:
    """Open the log, which may move from the first path to the second at any time."""
    for path in log.paths[:-1]:
        with suppress(FileNotFoundError):
            return _binary(path)
    return _binary(log.paths[-1])


def _binary(path: Path) -> BinaryIO:
    return path.open("rb")
