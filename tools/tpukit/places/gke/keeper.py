"""What hosts printed and how they ended, kept on this machine: pods are gone soon after their attempt, and their logs
with them. Whoever drives a job keeps its logs as they come; whoever asks later reads them here.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any, BinaryIO

from tpukit.errors import NotFound, TpukitError
from tpukit.kube import Cluster
from tpukit.places.gke.ends import Kept
from tpukit.places.gke.look import Doc

PROGRESS = "tpukit-progress "
"""How a host's line begins that says how far it is (tpukit.host.progress)."""
_RETRY_SECONDS = 1.0
_TAIL_BYTES = 16384
_STAMP = re.compile(r"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?Z ")


class Keeper:
    """Of one place. Folders are those of hosts, one for each attempt."""

    def __init__(self) -> None:
        self._threads: dict[str, threading.Thread] = {}  # by the uid of the pod

    def remember(self, folder: Path, pod: Doc, node: Doc | None) -> Kept:
        before = recall(folder)
        kept = Kept.of(pod, node, before if before and before.uid == pod["metadata"]["uid"] else None)
        if kept != before:
            folder.mkdir(parents=True, exist_ok=True, mode=0o700)
            _replace(folder / "pod", asdict(kept))
        return kept

    def follow(self, cluster: Cluster, pod: Doc, folder: Path) -> None:
        """Write down what the pod prints, from its beginning, until it ends."""
        uid = pod["metadata"]["uid"]
        if uid not in self._threads:
            thread = threading.Thread(target=_keep, args=(cluster, pod, folder), name=f"log {folder.name}", daemon=True)
            self._threads[uid] = thread
            thread.start()

    def settle(self, pods: Sequence[Doc], seconds: float) -> None:
        """Wait for the last lines of pods that have ended."""
        for pod in pods:
            thread = self._threads.get(pod["metadata"]["uid"])
            if thread is not None:
                thread.join(seconds)


def _keep(cluster: Cluster, pod: Doc, folder: Path) -> None:
    """Lines that are there already are not written again, so that this may begin anew at any moment."""
    with _log(folder) as log:
        while log:
            try:
                copy(_lines(cluster, pod, follow=True), log, folder)
            except (NotFound, OSError):  # it is gone; the disk is full, and whoever drives the job says so
                return
            except TpukitError:  # it has not started, or the connection was lost
                time.sleep(_RETRY_SECONDS)
            else:
                return


def fetch(cluster: Cluster, pod: Doc, folder: Path) -> None:
    """Write down what the pod has printed so far, where nobody else does."""
    with _log(folder) as log, suppress(TpukitError):  # it has not started, or it is gone
        if log:
            copy(_lines(cluster, pod), log, folder)


@contextmanager
def _log(folder: Path) -> Iterator[BinaryIO | None]:
    """The file, for whoever is the only one to write it; None for others."""
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    with (folder / "log").open("ab") as log:
        try:
            fcntl.flock(log, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            yield None
        else:
            yield log


def _lines(cluster: Cluster, pod: Doc, *, follow: bool = False) -> Iterator[str]:
    name, container = pod["metadata"]["name"], pod["spec"]["containers"][0]["name"]
    return cluster.logs(name, pod["metadata"]["namespace"], container=container, follow=follow, timestamps=True)


def copy(lines: Iterable[str], log: BinaryIO, folder: Path) -> None:
    """Lines that came after those which the log holds, and the progress that they tell beside it.

    Lines carry the time that their host gave them. A host keeps only the newest megabytes of a log, so how much of it
    is here already says nothing about where to go on.
    """
    known = _last_moment(log)
    for line in lines:
        moment = _moment(line)
        if known and moment and moment <= known:
            continue
        log.write(f"{line}\n".encode())
        log.flush()
        text = line.partition(" ")[2]
        if text.startswith(PROGRESS):
            note_progress(folder, text)


def _last_moment(log: BinaryIO) -> tuple[str, str] | None:
    """When the last whole line was printed. What a killed writer left of a line is cut off."""
    size = os.fstat(log.fileno()).st_size
    with Path(log.name).open("rb") as reader:
        reader.seek(max(0, size - _TAIL_BYTES))
        *whole, rest = reader.read().split(b"\n")
    os.ftruncate(log.fileno(), size - len(rest))
    moments = (_moment(line.decode(errors="replace")) for line in reversed(whole))
    return next(filter(None, moments), None)


def _moment(line: str) -> tuple[str, str] | None:
    """The time before a line, so that two can be compared as text: its second, and the parts of that."""
    match = _STAMP.match(line)
    return (match[1], match[2] or "") if match else None


def note_progress(folder: Path, line: str) -> None:
    try:
        values = json.loads(line.removeprefix(PROGRESS))
    except (ValueError, RecursionError):
        return
    if isinstance(values, dict):
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(folder / "progress", values)


def read(folder: Path, position: int, *, whole: bool) -> tuple[list[str], int]:
    """Lines for people behind `position`, and the position behind them; `whole` leaves a line that is not yet ended."""
    try:
        with (folder / "log").open("rb") as log:
            log.seek(position)
            text = log.read()
    except OSError:
        return [], position
    end = text.rfind(b"\n") + 1 if whole else len(text)
    return _for_people(text[:end]), position + end


def recall(folder: Path) -> Kept | None:
    try:
        return Kept(**json.loads((folder / "pod").read_bytes()))
    except (OSError, ValueError, TypeError):
        return None


def tail(folder: Path, lines: int = 100) -> list[str]:
    """The last lines that a host printed, without those that are not for people."""
    try:
        with (folder / "log").open("rb") as log:
            log.seek(max(0, os.fstat(log.fileno()).st_size - _TAIL_BYTES))
            text = log.read()
    except OSError:
        return []
    return _for_people(text)[-lines:]


def _for_people(text: bytes) -> list[str]:
    lines = [_STAMP.sub("", line, count=1) for line in text.decode(errors="replace").split("\n")]
    return [line for line in lines[: None if lines[-1] else -1] if not line.startswith(PROGRESS)]


def note(file: Path, change: Callable[[dict[str, Any]], None]) -> Mapping[str, Any]:
    """What is remembered of an attempt as a whole, after a change."""
    try:
        known = json.loads(file.read_bytes())
    except (OSError, ValueError):
        known = {}
    before = dict(known)
    change(known)
    if known != before:
        file.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        _replace(file, known)
    return dict(known)


def _replace(file: Path, values: Mapping[str, Any]) -> None:
    draft = file.with_name(f"{file.name}.{os.getpid()}.{threading.get_ident()}.new")
    draft.write_text(json.dumps(values), encoding="utf-8")
    draft.replace(file)
