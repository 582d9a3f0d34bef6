"""A dataset of samples, one per line, split into streams that workers take one at a time.

Sample i is line i // N of stream i mod N, so the split depends only on the lines and N, and every stream has an equal
share of any order in the dataset. The split takes one pass in constant memory. Files, in one folder:

    stream_000.jsonl ...   the samples
    streams.json           samples, bytes and checksum of each stream; written last, so a partial split has none
"""

from __future__ import annotations

import gzip
import hashlib
import multiprocessing
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, closing
from functools import partial
from pathlib import Path
from typing import IO, Any

import msgspec

from tpukit.core.errors import Invalid, NotFound, Transient
from tpukit.jobs.spec.fleet import MOST_STREAMS

BLOCK = 4 << 20
"""Bytes per read."""
LARGE = 256 << 20
"""Bytes of a dataset from which starting processes pays off."""
MOST_PROCESSES = 8
_SPACE = ord(" ")
Line = bytes | memoryview
MANIFEST = "streams.json"


class Stream(msgspec.Struct, frozen=True):
    name: str
    samples: int
    bytes: int
    sha256: str


class Streams(msgspec.Struct, frozen=True):
    """The content of a folder of streams."""

    sources: dict[str, str]  # size and time by name: a changed file is split again
    limit: int
    streams: list[Stream]

    @property
    def digest(self) -> str:
        """Digest of the samples, regardless of their source. Workers compute the same (host.worker.digest_of)."""
        lines = [f"{stream.name} {stream.samples} {stream.sha256}" for stream in self.streams]
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()

    @property
    def samples(self) -> int:
        return sum(stream.samples for stream in self.streams)


def name_of(index: int) -> str:
    return f"stream_{index:03d}.jsonl"


def split(sources: Sequence[Path], folder: Path, count: int, *, limit: int = 0) -> tuple[Streams, bool]:
    """Split the sources into `count` streams in `folder`, with at most `limit` samples each (0: all).

    A folder with the same split is kept. Return the streams, and whether they had to be made.
    """
    if not 1 <= count <= MOST_STREAMS:
        raise Invalid(f"{count} streams: there can be 1 to {MOST_STREAMS}")
    wanted = {str(source): _mark(source) for source in sources}
    known = load(folder)
    if known and (known.sources, known.limit, len(known.streams)) == (wanted, limit, count):
        return known, False
    folder.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        streams = Streams(wanted, limit, _write(sources, new, count, limit))
        (new / MANIFEST).write_bytes(msgspec.json.format(msgspec.json.encode(streams)))
        _replace(new, folder)
    finally:
        shutil.rmtree(new, ignore_errors=True)
    return streams, True


def load(folder: Path) -> Streams | None:
    """Return the streams in the folder; None if there is no complete split."""
    try:
        return msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Streams)
    except FileNotFoundError:
        return None
    except msgspec.DecodeError as error:
        raise Invalid(f"{folder / MANIFEST}: {error}", hint="delete that folder and split again") from error


def damaged(folder: Path, streams: Streams) -> list[str]:
    """Return the names of streams whose file does not match the manifest."""
    return [stream.name for stream in streams.streams if _read_back(folder / stream.name) != stream.sha256]


def _write(sources: Sequence[Path], folder: Path, count: int, limit: int) -> list[Stream]:
    """Write the streams; for large datasets in several processes, each of which reads everything and writes its share.

    Threads would not help: cutting lines holds the interpreter lock, and checksums are half of the work.
    """
    size = sum(source.stat().st_size for source in sources)
    shares = min(len(os.sched_getaffinity(0)), count, MOST_PROCESSES) if size >= LARGE else 1
    part = partial(_write_some, sources, folder, count, limit)
    if shares == 1:
        return part(range(count))
    mine = [range(first, count, shares) for first in range(shares)]
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(shares, spawn, initializer=_leave_quietly) as processes:
        try:
            made = [stream for some in processes.map(part, mine) for stream in some]
        except BrokenProcessPool as error:
            why = "a process that splits the dataset was killed"
            raise Transient(why, hint="the kernel may have run out of memory; run the command again") from error
    return sorted(made, key=lambda stream: stream.name)


def _leave_quietly() -> None:
    """Exit silently on Ctrl-C: the parent process reports it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def _write_some(sources: Sequence[Path], folder: Path, count: int, limit: int, mine: range) -> list[Stream]:
    """Write the streams of these numbers."""
    with ExitStack() as stack:
        writers = {index: stack.enter_context(closing(_Writer(folder / name_of(index)))) for index in mine}
        done = 0  # samples so far, which determines the stream of the next one
        for block in _blocks(sources):
            lines = block[: limit * count - done] if limit else block
            for index, writer in writers.items():
                writer.append(lines[(index - done) % count :: count])
            done += len(lines)
            if limit and done >= limit * count:
                break
        return [writer.end() for writer in writers.values()]


class _Writer:
    """The writer of one stream."""

    def __init__(self, path: Path) -> None:
        self._path, self._file = path, path.open("wb", buffering=0)
        self._digest, self._samples, self._size = hashlib.sha256(), 0, 0

    def append(self, lines: Sequence[Line]) -> None:
        part = b"".join(lines)
        self._digest.update(part)
        self._samples += len(lines)
        self._size += len(part)
        left = memoryview(part)
        while left:  # an unbuffered file may take less than all, for example on a disk that fills up
            left = left[self._file.write(left) :]

    def end(self) -> Stream:
        os.fsync(self._file.fileno())
        return Stream(self._path.name, self._samples, self._size, self._digest.hexdigest())

    def close(self) -> None:
        self._file.close()


def _blocks(sources: Sequence[Path]) -> Iterator[list[Line]]:
    """Yield the lines of all sources in turn, in blocks, each with its newline. Blank lines are not samples."""
    for source in sources:
        with _opened(source) as file:
            rest = b""  # of a line whose end is in the next block
            while block := file.read(BLOCK):
                end = block.rfind(b"\n") + 1
                if end:
                    yield _lines(rest, block, end)
                    rest = block[end:]
                else:
                    rest += block
            if rest and not rest.isspace():
                yield [rest + b"\n"]


def _lines(rest: bytes, block: bytes, end: int) -> list[Line]:
    """Return views of lines, because copying each line would cost as much as all other work on it."""
    start = block.find(b"\n") + 1
    first = rest + block[:start]
    lines: list[Line] = [] if first.isspace() else [first]
    view = memoryview(block)
    while start < end:
        stop = block.find(b"\n", start) + 1
        if block[start] > _SPACE or not block[start:stop].isspace():
            lines.append(view[start:stop])
        start = stop
    return lines


def _opened(source: Path) -> IO[bytes]:
    if source.suffix == ".gz":
        opened: Any = gzip.open(source, "rb")  # noqa: SIM115  # the caller closes it
        compressed: IO[bytes] = opened
        return compressed
    return source.open("rb")


def _mark(source: Path) -> str:
    try:
        stat = source.stat()
    except OSError as error:
        raise NotFound(f"{source}: {error.strerror}") from error
    return f"{stat.st_size} bytes of {stat.st_mtime_ns}"


def _replace(new: Path, folder: Path) -> None:
    if folder.is_dir():
        old = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
        folder.rename(old / "old")
        new.rename(folder)
        shutil.rmtree(old, ignore_errors=True)
    else:
        new.rename(folder)


def _read_back(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return hashlib.file_digest(opened, "sha256").hexdigest()
    except FileNotFoundError:
        return ""
