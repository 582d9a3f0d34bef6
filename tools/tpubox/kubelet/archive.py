"""Logs that a kubelet no longer keeps, up to a size limit: on GKE, Cloud Logging has them by then.

    archive/NAMESPACE_NAME_UID/pod.json           the pod as it was first seen
                               node.json          labels of its node
                               CONTAINER/RUN/log  output of one run of a container, and log.1 and so on

When its pod is removed or newer files replace it, a file moves there atomically and keeps its name. A reader that lists
`pods` before `archive` therefore misses none.
"""

from __future__ import annotations

import json
import logging
import shutil
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tpukit.places.local import processes as pods

LIMIT_BYTES = 256 << 20
LIVE, ARCHIVED = "pods", "archive"
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Printed:
    """An output file of one run of a container, in the format of a container runtime, at one of two paths."""

    namespace: str
    pod: str
    uid: str
    container: str
    run: int
    file: int  # number of earlier files
    labels: Mapping[str, str]  # of the pod
    node: str
    node_labels: Mapping[str, str]
    paths: tuple[Path, Path]


class Archive:
    def __init__(self, root: Path, limit: int = LIMIT_BYTES) -> None:
        self._root = root
        self._limit = limit
        self._lock = threading.Lock()
        root.mkdir(parents=True, exist_ok=True, mode=0o700)

    def take(self, pod: Path, *, but: int = 0) -> None:
        """Move the logs of a pod's folder, all or all `but` the newest files of each run.

        After a kill, files that were already moved stay moved. A full disk loses them.
        """
        with self._lock:
            if logs := [log for run in _runs(pod) for log in _but_last(pods.log_files(run), but)]:
                self._move(pod, logs)
                self._trim()

    def _move(self, pod: Path, logs: Sequence[Path]) -> None:
        try:
            for log in logs:
                home = self._root / log.relative_to(pod.parent).parent
                home.mkdir(parents=True, exist_ok=True, mode=0o700)
                for name in ("pod.json", "node.json"):
                    if (pod / name).exists():
                        shutil.copyfile(pod / name, self._root / pod.name / name)
                log.replace(home / log.name)
        except OSError as error:
            _log.warning("logs of %s are lost: %s", pod.name, error)

    def _trim(self) -> None:
        sizes = {folder: _size(folder) for folder in sorted(self._root.iterdir(), key=lambda one: one.stat().st_mtime)}
        excess = sum(sizes.values()) - self._limit
        for folder, size in sizes.items():
            if excess <= 0:
                return
            shutil.rmtree(folder, ignore_errors=True)
            excess -= size


def printed(folder: Path) -> Iterator[Printed]:
    """Yield all log files in an agent's folder, of running, ended and removed pods."""
    seen = set()
    for part in (LIVE, ARCHIVED):
        runs = sorted(run for pod in (folder / part).glob("*_*_*") for run in _runs(pod))
        for log in (log for run in runs for log in pods.log_files(run)):
            where = log.relative_to(folder / part)
            if where in seen:
                continue
            seen.add(where)
            pod, container, run = where.parts[:3]
            described = [_read(log.parents[2] / "pod.json"), _read(folder / ARCHIVED / pod / "pod.json")]
            document = next(filter(None, described), None)
            if document is None:
                continue
            nodes = [_read(log.parents[2] / "node.json"), _read(folder / ARCHIVED / pod / "node.json")]
            metadata = document["metadata"]
            yield Printed(
                namespace=metadata["namespace"],
                pod=metadata["name"],
                uid=metadata["uid"],
                container=container,
                run=int(run),
                file=pods.log_number(log),
                labels=metadata.get("labels") or {},
                node=document["spec"].get("nodeName", ""),
                node_labels=next(filter(None, nodes), {}),
                paths=(folder / LIVE / where, folder / ARCHIVED / where),
            )


def _runs(pod: Path) -> Iterator[Path]:
    """Yield the folders of runs; volumes are skipped because they may hold files of the same names."""
    return (run for run in pod.glob("*/[0-9]*") if run.parent.name != "volumes")


def _but_last(logs: Sequence[Path], number: int) -> Sequence[Path]:
    return logs[: max(0, len(logs) - number)]


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())


def _read(file: Path) -> dict[str, Any] | None:
    try:
        document: dict[str, Any] = json.loads(file.read_bytes())
    except (OSError, ValueError):  # it is being moved, or was truncated by a full disk
        return None
    return document
