"""The log of one pod, read in pieces. Every read continues where the last one ended, even after errors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tpukit.core.errors import Transient
from tpukit.kube import Cluster
from tpukit.places.gke.hosts import HOST_CONTAINER
from tpukit.places.gke.jobsets import Doc, host_of
from tpukit.places.gke.log_lines import NewLines, Position

ANSWER_SECONDS = 10.0
"""Time limit, because a lost node does not answer for its pods."""
PIECE_BYTES = 512 << 10
_MOST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class Target:
    """A pod whose log is read."""

    cluster: Cluster
    namespace: str
    pod: str
    uid: str
    container: str
    host: str
    cache: Path | None = None
    pattern: str = ""  # of its progress lines, if the job has one

    @staticmethod
    def of(cluster: Cluster, pod: Doc, cache: Path | None = None) -> Target:
        names = [str(one["name"]) for one in pod.get("spec", {}).get("containers", [])]
        container = HOST_CONTAINER if HOST_CONTAINER in names else (names or [""])[0]
        metadata = pod["metadata"]
        name, uid = str(metadata["name"]), str(metadata["uid"])
        return Target(cluster, str(metadata["namespace"]), name, uid, container, host_of(pod), cache)


class PodLog:
    """A log for use by one thread at a time."""

    def __init__(self, target: Target, position: Position | None = None) -> None:
        self.target = target
        self.position = position or Position()
        self._bytes = PIECE_BYTES

    def read(self, seconds: float = ANSWER_SECONDS) -> tuple[list[str], bool]:
        """Return new lines with their times, and whether there may be more already.

        A lost connection loses nothing: received lines are used, and the next read gets the rest. `seconds`: the
        maximum silence of the host.
        """
        target = self.target
        new = NewLines(self.position)
        lines: list[str] = []
        received, cut = 0, False
        try:
            for line in target.cluster.logs(
                target.pod,
                target.namespace,
                container=target.container,
                timestamps=True,
                since=self.position.since,
                limit_bytes=self._bytes,
                seconds=seconds,
            ):
                received += len(line.encode()) + 1
                if received > self._bytes:  # the last line of a full piece may be incomplete
                    cut = True
                    break
                if new.takes(line):
                    lines.append(line)
        except Transient:
            if not lines:
                raise
            cut = True
        self.position = new.position
        cut = cut or received >= self._bytes
        if lines:
            self._bytes = PIECE_BYTES
        elif cut:  # one second, or one line, is longer than a piece
            cut = self._bytes < _MOST_BYTES
            self._bytes = min(self._bytes * 4, _MOST_BYTES)
        return lines, cut

    def rest(self) -> Iterator[str]:
        """Yield all lines that were not read yet."""
        more = True
        while more:
            lines, more = self.read()
            yield from lines
