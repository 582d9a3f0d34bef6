"""What containers printed, as kubectl asks for it. Found by the pod's name on disk, so it outlives the agent."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tpukit import pods
from tpukit.errors import Invalid, NotFound
from tpukit.pods import Phase
from tpukit.sandbox.agent.times import parse

MAX_FILE_BYTES = 10 << 20
"""How long a log file of a kubelet gets (containerLogMaxSize) before it begins another, and serves that one alone:
https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation. Here the file stays whole, because it
is also what Cloud Logging has collected by then; only what is served begins anew. That a kubelet looks at sizes every
ten seconds, and so lets files get longer, is left out."""
_POLL_SECONDS = 0.2


@dataclass(frozen=True, slots=True)
class Wanted:
    follow: bool = False
    previous: bool = False
    timestamps: bool = False
    tail: int | None = None
    since: float = 0.0  # seconds since the epoch
    limit: int | None = None  # bytes

    @staticmethod
    def from_query(query: Mapping[str, str], now: float) -> Wanted:
        try:
            ago, at = query.get("sinceSeconds"), query.get("sinceTime")
            return Wanted(
                follow=query.get("follow") == "true",
                previous=query.get("previous") == "true",
                timestamps=query.get("timestamps") == "true",
                tail=int(query["tailLines"]) if "tailLines" in query else None,
                since=now - int(ago) if ago else parse(at) if at else 0.0,
                limit=int(query["limitBytes"]) if "limitBytes" in query else None,
            )
        except ValueError as error:
            raise Invalid(f"not a way to ask for logs: {error}") from error


def find_run(root: Path, namespace: str, pod: str, container: str, *, previous: bool = False) -> Path:
    """The folder of a container's last run, or of the one before it."""
    folders = sorted(root.glob(f"{namespace}_{pod}_*"), key=lambda path: path.stat().st_mtime)
    if not folders:
        raise NotFound(f'pod "{pod}" not found')
    runs = sorted((folders[-1] / container).glob("[0-9]*"), key=lambda path: int(path.name))
    began = [run for run in runs if pods.status(run).phase is not Phase.ABSENT]
    if previous:
        if len(began) < 2:
            raise Invalid(f'previous terminated container "{container}" in pod "{pod}" not found')
        return began[-2]
    if not began:
        raise Invalid(f'container "{container}" in pod "{pod}" is waiting to start: ContainerCreating')
    return began[-1]


def read(run: Path, wanted: Wanted) -> Iterator[bytes]:
    """Pieces of output. With `follow` it goes on until the run has ended; an empty piece says that nothing came."""
    sent = 0
    for piece in _pieces(run, wanted):
        if wanted.limit is not None and sent + len(piece) >= wanted.limit:
            yield piece[: wanted.limit - sent]
            return
        sent += len(piece)
        yield piece


def _pieces(run: Path, wanted: Wanted) -> Iterator[bytes]:
    rest = b""
    first = True
    position = -1
    while True:
        ended = pods.status(run).phase is not Phase.RUNNING
        try:
            with (run / "log").open("rb") as log:
                if position < 0:  # who follows goes on across files
                    position = _newest_file(log)
                log.seek(position)
                new = log.read()
                position += len(new)
        except FileNotFoundError:
            new = b""
        *lines, rest = (rest + new).split(b"\n")
        shown = _shown(lines, wanted)
        yield b"".join(deque(shown, maxlen=wanted.tail) if first else shown)
        first = False
        if ended or not wanted.follow:
            return
        time.sleep(_POLL_SECONDS)


def _newest_file(log: BinaryIO) -> int:
    """Where the file begins that a kubelet would have begun last."""
    begin = log.seek(0, 2) // MAX_FILE_BYTES * MAX_FILE_BYTES
    if not begin:
        return 0
    log.seek(begin - 1)
    log.readline()  # lines are not divided
    return log.tell()


def _shown(lines: list[bytes], wanted: Wanted) -> Iterator[bytes]:
    for line in lines:
        at, _, tag, text = (line.split(b" ", 3) + [b""] * 4)[:4]
        if wanted.since and parse(at.decode()) < wanted.since:
            continue
        yield (at + b" " if wanted.timestamps else b"") + text + (b"" if tag == b"P" else b"\n")
