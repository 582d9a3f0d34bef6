"""Output of containers, as kubectl requests it.

Logs are found on disk by the pod's name, so they outlive the agent.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tpubox.kubelet.times import parse
from tpukit.core.errors import Invalid, NotFound
from tpukit.places.local import processes as pods
from tpukit.places.local.processes import Phase

MAX_FILE_BYTES, MAX_FILES = 10 << 20, 5
"""Limits of one run: containerLogMaxSize and containerLogMaxFiles of a kubelet.

A kubelet serves only the newest file: https://kubernetes.io/docs/concepts/cluster-administration/logging/#log-rotation.
Here a file is rotated as soon as it reaches the limit; a kubelet checks every ten seconds, so its files get longer. It
also compresses rotated files.
"""
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
    """Return the folder of a container's last run, or of the run before it."""
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
    """Yield pieces of output.

    With `follow`, continue until the run has ended; an empty piece means that there was no new output.
    """
    sent = 0
    for piece in _pieces(run, wanted):
        if wanted.limit is not None and sent + len(piece) >= wanted.limit:
            yield piece[: wanted.limit - sent]
            return
        sent += len(piece)
        yield piece


def _pieces(run: Path, wanted: Wanted) -> Iterator[bytes]:
    rest = b""
    number, first = -1, True
    with ExitStack() as held, suppress(FileNotFoundError):  # removed with its pod
        log: BinaryIO | None = None
        while True:
            ended = pods.status(run).phase is not Phase.RUNNING
            newer = [file for file in pods.log_files(run) if pods.log_number(file) > number]
            if log is None and newer:
                log, number, newer = held.enter_context(newer[-1].open("rb")), pods.log_number(newer[-1]), []
            new = log.read() if log else b""  # complete if there is a newer file
            *lines, rest = (rest + new).split(b"\n")
            shown = _shown(lines, wanted)
            yield b"".join(deque(shown, maxlen=wanted.tail) if first else shown)
            first = False
            if not wanted.follow or (ended and not newer):
                return
            if newer:  # following continues across files
                held.close()
                log, number = held.enter_context(newer[0].open("rb")), pods.log_number(newer[0])
            else:
                time.sleep(_POLL_SECONDS)


def _shown(lines: list[bytes], wanted: Wanted) -> Iterator[bytes]:
    for line in lines:
        at, _, tag, text = (line.split(b" ", 3) + [b""] * 4)[:4]
        if wanted.since and parse(at.decode()) < wanted.since:
            continue
        yield (at + b" " if wanted.timestamps else b"") + text + (b"" if tag == b"P" else b"\n")
