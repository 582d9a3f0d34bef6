"""Lines of a log file, read piece by piece: a log of gigabytes costs no more memory than a screen."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

PIECE = 64 << 10
"""A line longer than this comes as several."""


def read(path: Path, position: int = 0, *, unfinished: bool = False) -> Iterator[tuple[str, int]]:
    """Each line behind `position`, with the position behind it. `unfinished`: also a last one that has no end yet."""
    try:
        log = path.open("rb")
    except OSError:
        return
    with log:
        log.seek(position)
        rest = b""
        while piece := log.read(PIECE):
            *lines, rest = (rest + piece).split(b"\n")
            for line in lines:
                position += len(line) + 1
                yield line.decode(errors="replace"), position
            if len(rest) >= PIECE:
                position += len(rest)
                yield rest.decode(errors="replace"), position
                rest = b""
    if rest and unfinished:
        yield rest.decode(errors="replace"), position + len(rest)
