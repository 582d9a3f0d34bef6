"""Lines of a log file, read in pieces or from its end, so that memory use does not depend on the log's size."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

PIECE = 64 << 10
"""Maximum length of a line; a longer one is returned in parts."""


def read(path: Path, position: int = 0, *, unfinished: bool = False) -> Iterator[tuple[str, int]]:
    """Yield each line behind `position`, with the position behind it. `unfinished`: also a last, incomplete one."""
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


def tail(path: Path, size: int) -> list[str]:
    """Return the lines in the last `size` bytes of a log.

    The first of several lines is dropped if it may be incomplete.
    """
    try:
        with path.open("rb") as log:
            end = log.seek(0, os.SEEK_END)
            log.seek(max(0, end - size))
            return split(log.read(size), cut=end > size)
    except OSError:
        return []


def split(content: bytes, *, cut: bool) -> list[str]:
    """Return the lines of a piece of a log. `cut`: its beginning is missing."""
    found = content.removesuffix(b"\n").split(b"\n") if content else []
    return [line.decode(errors="replace") for line in (found[1:] if cut and len(found) > 1 else found)]
