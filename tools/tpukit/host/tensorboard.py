"""Copy TensorBoard data out of a job's workdir while the job runs: `python -m tpukit.host.tensorboard`.

Data goes to Vertex AI TensorBoard with `--tensorboard`, to a folder with `--to`. It runs until SIGTERM, then makes one
last pass so that the end of the run is not lost. Errors are logged and retried on the next pass. A restart copies
everything again, which does no harm.
"""

from __future__ import annotations

import argparse
import fcntl
import logging
import os
import signal
import sys
import threading
from collections.abc import Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any, Protocol

from tpukit.host.tensorboard_events import EventFile, event_files
from tpukit.host.vertex import ENDPOINT, Vertex

_log = logging.getLogger("tpukit.tensorboard")
LOCK_SECONDS = 0.5
"""Seconds between two looks at a lock."""


class Target(Protocol):
    def sync(self, logdir: Any) -> int:
        """Copy everything new under `logdir`, and return how much there was."""


class Folder:
    """A folder of copied event files, each replaced whole: readers never see a partial one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def sync(self, logdir: Any) -> int:
        copied = 0
        for run, path in event_files(logdir):
            copy = self._folder / run / path.name
            content = path.read_bytes()
            if copy.exists() and copy.stat().st_size == len(content):  # event files only grow
                continue
            copy.parent.mkdir(parents=True, exist_ok=True)
            draft = copy.with_name(f".{copy.name}.{os.getpid()}")
            draft.write_bytes(content)
            draft.replace(copy)
            copied += 1
        return copied


class VertexExperiment:
    """A Vertex experiment: scalars as points of time series.

    The position is kept in memory only: points replace points.
    """

    def __init__(self, vertex: Vertex) -> None:
        self._vertex = vertex
        self._files: dict[str, EventFile] = {}

    def sync(self, logdir: Any) -> int:
        sent = 0
        for run, path in event_files(logdir):
            file = self._files.setdefault(str(path), EventFile(path))
            scalars, position = file.new()
            if scalars:
                self._vertex.push(run, scalars)
            file.taken(position)
            sent += len(scalars)
        return sent


def follow(logdir: Any, target: Target, *, every: float, leaving: threading.Event) -> bool:
    """Sync until `leaving` is set, and once more. Return whether that last pass succeeded."""
    while not leaving.wait(every):
        _pass(logdir, target)
    return _pass(logdir, target)


def _leave_when_free(lock: Path, leaving: threading.Event) -> None:
    """Set `leaving` once the job's supervisor, which holds the lock while the job runs, has ended or was killed."""
    while _is_locked(lock):
        leaving.wait(LOCK_SECONDS)
    leaving.set()


def _is_locked(lock: Path) -> bool:
    try:
        with lock.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    return False


def _pass(logdir: Any, target: Target) -> bool:
    try:
        moved = target.sync(logdir) if logdir.exists() else 0
    except (OSError, HTTPException) as error:  # no network, a refusal, a full disk
        _log.warning("not uploaded yet: %s", error)
        return False
    if moved:
        _log.info("uploaded %d", moved)
    return True


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tpukit.host.tensorboard", description=__doc__.split("\n")[0])
    parser.add_argument("--logdir", required=True, help="folder or gs:// address with the job's event files")
    parser.add_argument("--to", type=Path, help="folder that receives them")
    parser.add_argument("--tensorboard", help="projects/PROJECT/locations/REGION/tensorboards/NUMBER, in place of --to")
    parser.add_argument("--experiment", help="name of this job in TensorBoard")
    parser.add_argument("--endpoint", default="", help=f"of an emulator, in place of Google's and of ${ENDPOINT}")
    parser.add_argument("--every", type=float, default=15.0, metavar="SECONDS")
    parser.add_argument("--while-locked", type=Path, metavar="FILE", help="exit when no process holds the lock on it")
    parser.add_argument("--once", action="store_true", help="make one pass, then exit")
    options = parser.parse_args(arguments)
    if options.tensorboard and (options.to or not options.experiment):
        parser.error("--tensorboard needs --experiment, and takes the place of --to")
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(message)s")

    leaving = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: leaving.set())
    if options.tensorboard:
        target: Target = VertexExperiment(Vertex(options.tensorboard, options.experiment, endpoint=options.endpoint))
    elif options.to:
        target = Folder(options.to)
    else:
        _log.info("neither --tensorboard nor --to: event files stay in %s", options.logdir)
        return 0
    if options.once:
        leaving.set()
    if options.while_locked:
        waiting = threading.Thread(target=_leave_when_free, args=(options.while_locked, leaving), daemon=True)
        waiting.start()
    return 0 if follow(_folder(options.logdir), target, every=options.every, leaving=leaving) else 1


def _folder(address: str) -> Any:
    if "://" not in address:
        return Path(address)
    from etils import epath  # type: ignore[import-untyped, unused-ignore]

    return epath.Path(address)


if __name__ == "__main__":
    sys.exit(main())
