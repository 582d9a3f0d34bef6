"""A local cache of host logs that a `tpu` on this machine has read, since pods are removed soon after their attempt.

It is no record: no decision depends on it, and without it logs are read from pods or from Cloud Logging.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from tpukit.places.gke import log_lines
from tpukit.places.gke.log_lines import NewLines, Position

_TAIL_BYTES = 1 << 18
_GAP = "(earlier lines are not stored on this machine)"


class LogCache:
    """The file of one host in one attempt. Several processes may write it, each under a short lock."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def position(self) -> Position:
        """Return the position behind its last line."""
        try:
            with self.file.open("rb") as log:
                return _end(log)[0]
        except OSError:
            return Position()

    def append(self, lines: Sequence[str], before: Position) -> bool:
        """Append lines read from `before` on, except those that another process wrote meanwhile.

        Return False if nothing could be written: another process is writing, or the disk is full.
        """
        if not lines:
            return True
        try:
            self.file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self._locked() as log:
                if log is None:
                    return False
                end, size = _end(log)
                os.ftruncate(log.fileno(), size)  # drops the partial line of a killed writer
                new = NewLines(end)
                taken = [line for line in lines if new.takes(line)]
                if taken and _is_gap(end, before):
                    taken.insert(0, f"{before.since.removesuffix('Z')}Z {_GAP}")
                log.write("".join(f"{line}\n" for line in taken).encode())
            return True
        except OSError:
            return False

    def tail(self) -> list[str]:
        """Return the last lines, with their times."""
        try:
            with self.file.open("rb") as log:
                size = os.fstat(log.fileno()).st_size
                log.seek(max(0, size - _TAIL_BYTES))
                *complete, _ = log.read().split(b"\n")
        except OSError:
            return []
        cut = int(size > _TAIL_BYTES)  # the first one is incomplete
        return [line.decode(errors="replace") for line in complete[cut:]]

    def lines(self) -> Iterator[str]:
        """Yield the lines with their times, whole lines only."""
        with suppress(OSError), self.file.open("rb") as log:
            for line in log:
                if line.endswith(b"\n"):
                    yield line[:-1].decode(errors="replace")

    @contextmanager
    def _locked(self) -> Iterator[BinaryIO | None]:
        with self.file.open("a+b") as log:
            try:
                fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                yield None
            else:
                yield log


def _is_gap(end: Position, before: Position) -> bool:
    return before.moment > end.moment or (before.moment == end.moment and before.count > end.count)


def _end(log: BinaryIO) -> tuple[Position, int]:
    """Return where the last whole line ends: in the log, and in the file."""
    size = os.fstat(log.fileno()).st_size
    log.seek(max(0, size - _TAIL_BYTES))
    *complete, rest = log.read().split(b"\n")
    position = Position()
    for line in reversed(complete):
        at = log_lines.moment(line[:40].decode(errors="replace"))
        if at is None:
            continue
        if position.count and at != position.moment:
            break
        position = Position(at, position.count + 1)
    return position, size - len(rest)
