"""A kubelet's warnings about a pod, as events that `kubectl describe pod` shows.

Only events that explain why a pod does not start are written. Pulled, Created and Started are left out: they cost three
writes for every container, and nothing waits for them.
"""

from __future__ import annotations

import logging
import threading
import zlib
from dataclasses import dataclass, replace

from tpubox.kubelet.api_server import Api
from tpubox.kubelet.env import Object
from tpubox.kubelet.times import stamp
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NotFound, TpukitError

COMPONENT = "kubelet"
_LONGEST = 1000  # characters that the API server accepts
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Said:
    first: float
    count: int


class PodEvents:
    """Events of pods. Thread-safe. An event that cannot be written is logged and ignored."""

    def __init__(self, api: Api, clock: Clock) -> None:
        self._api, self._clock = api, clock
        self._said: dict[tuple[str, str], _Said] = {}  # by uid of the pod and name of the event
        self._lock = threading.Lock()

    def warn(self, pod: Object, reason: str, message: str) -> None:
        """Count a warning, and write it at its 1st, 2nd, 4th, 8th time: a kubelet also waits longer each time."""
        metadata = pod["metadata"]
        mark = zlib.crc32(f"{metadata['uid']} {reason} {message}".encode())
        name = f"{metadata['name'][:200]}.{mark:016x}"
        with self._lock:
            said = self._said.get((metadata["uid"], name), _Said(self._clock.now(), 0))
            said = replace(said, count=said.count + 1)
            self._said[metadata["uid"], name] = said
        if said.count & (said.count - 1) == 0:
            try:
                self._write(pod, name, reason, message[:_LONGEST], said)
            except TpukitError as error:
                _log.warning("pod %s: event %s could not be written: %s", metadata["name"], reason, error)

    def forget(self, uid: str) -> None:
        with self._lock:
            for key in [key for key in self._said if key[0] == uid]:
                del self._said[key]

    def _write(self, pod: Object, name: str, reason: str, message: str, said: _Said) -> None:
        metadata, now = pod["metadata"], stamp(self._clock.now())
        about = {"apiVersion": "v1", "kind": "Pod", **{key: metadata[key] for key in ("name", "namespace", "uid")}}
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": metadata["namespace"]},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": {"component": COMPONENT, "host": pod["spec"].get("nodeName", "")},
            "reportingComponent": COMPONENT,
            "reportingInstance": pod["spec"].get("nodeName", ""),
            "firstTimestamp": stamp(said.first),
            "lastTimestamp": now,
            "count": said.count,
        }
        try:
            self._api.create(event)
        except Conflict:  # this agent or an earlier one created it
            try:
                self._api.patch("Event", name, {"lastTimestamp": now, "count": said.count}, metadata["namespace"])
            except NotFound:  # it has expired meanwhile
                return
