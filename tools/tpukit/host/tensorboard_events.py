"""Scalars from TensorBoard event files, as they grow, without TensorFlow.

An event file is a sequence of records: length, checksum of the length, bytes, checksum of the bytes. A killed writer
leaves the last record unfinished, and an active writer may be in the middle of it; both look the same from here, so an
unfinished record is ignored until it is complete.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

_log = logging.getLogger(__name__)

_HEADER = struct.Struct("<QI")
_CHECKSUM = struct.Struct("<I")


class _Damage(Exception):
    """A checksum does not match."""


@dataclass(frozen=True, slots=True)
class Scalar:
    tag: str
    step: int
    time: float  # seconds since the epoch
    value: float


class EventFile:
    """One file, read from where the last successful read ended. Everything after damage is ignored."""

    def __init__(self, path: Any) -> None:
        self._path = path  # a pathlib.Path, or anything that opens like one
        self._position = 0
        self._damaged = False

    def new(self) -> tuple[list[Scalar], int]:
        """Return the scalars that have not been `taken` yet, and the position after them."""
        scalars: list[Scalar] = []
        position = self._position
        if self._damaged:
            return scalars, position
        with self._path.open("rb") as file:
            file.seek(position)
            unread = file.read()
        try:
            for record in _records(unread):
                scalars += _scalars(record)
                position += _HEADER.size + len(record) + _CHECKSUM.size
        except _Damage:
            self._damaged = True
            _log.warning("%s is damaged at byte %d: the rest of the file is skipped", self._path, position)
        return scalars, position

    def taken(self, position: int) -> None:
        """Skip everything before `position` from now on."""
        self._position = position


def event_files(folder: Any) -> list[tuple[str, Any]]:
    """Return run and path of each event file below `folder`, oldest first within a run. The folder names the run."""
    found = [(path.parent, path) for path in _files_below(folder) if "tfevents" in path.name]
    prefix = len(str(folder).rstrip("/")) + 1
    return sorted(((str(parent)[prefix:] or "run", path) for parent, path in found), key=lambda pair: str(pair[1]))


def _files_below(folder: Any) -> Iterator[Any]:
    """Yield all files, folder by folder: bucket addresses do not support recursive search."""
    if not folder.exists():
        return
    for path in folder.iterdir():
        if path.is_dir():
            yield from _files_below(path)
        else:
            yield path


def _records(unread: bytes) -> Iterator[bytes]:
    """Yield each whole record of `unread`."""
    start = 0
    while start + _HEADER.size <= len(unread):
        length, checksum = _HEADER.unpack_from(unread, start)
        if checksum != _masked(unread[start : start + 8]):
            raise _Damage
        body = start + _HEADER.size
        start = body + length + _CHECKSUM.size
        if start > len(unread):
            return
        record = unread[body : body + length]
        if _CHECKSUM.unpack_from(unread, body + length)[0] != _masked(record):
            raise _Damage
        yield record


def _scalars(record: bytes) -> Iterator[Scalar]:
    from tensorboardX.proto.event_pb2 import Event

    event = Event.FromString(record)
    for value in event.summary.value:
        number = _number(value)
        if number is not None:
            yield Scalar(value.tag, event.step, event.wall_time, number)


def _number(value: Any) -> float | None:
    """Return the number in `value`; None for pictures, texts and histograms.

    Old writers fill simple_value, new ones a tensor of one float.
    """
    if value.HasField("simple_value"):
        return float(value.simple_value)
    if value.HasField("tensor") and value.metadata.plugin_data.plugin_name == "scalars":
        if value.tensor.float_val:
            return float(value.tensor.float_val[0])
        if len(value.tensor.tensor_content) == 4:
            return float(struct.unpack("<f", value.tensor.tensor_content)[0])
    return None


def _masked(data: bytes) -> int:
    """Return TFRecord's rotated CRC32C."""
    from tensorboardX.crc32c import crc32c

    checksum = int(crc32c(data))
    return (((checksum >> 15) | (checksum << 17)) + 0xA282EAD8) & 0xFFFFFFFF
