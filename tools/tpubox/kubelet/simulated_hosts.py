"""Admission for hosts that kwok simulates: pods that a kubelet would reject are rejected here.

kwok knows pods but not the chips of their hosts, and starts every scheduled pod. It can be faster than this check, so a
rejected pod may appear as running for a moment.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress

from tpubox.kubelet import tpu_environment
from tpubox.kubelet.api_server import Api
from tpubox.kubelet.env import Object
from tpubox.kubelet.times import stamp
from tpubox.kubelet.work import Line
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NotFound, TpukitError

LABEL = ("tpukit.dev/simulated", "kwok")
"""Label of nodes that kwok simulates, which the creator of a pool sets."""
_RETRY_SECONDS = 2.0
_log = logging.getLogger(__name__)


class SimulatedHosts:
    def __init__(self, api: Api, clock: Clock) -> None:
        self._api = api
        self._clock = clock
        self._labels: dict[str, dict[str, str]] = {}  # of nodes by name; empty for nodes that kwok does not simulate
        self._pods: dict[str, Object] = {}
        self._lock = threading.Lock()
        self.line = Line()

    def saw(self, pod: Object, *, gone: bool = False) -> None:
        """Record the current state of a pod. Pods without chips and ended pods need no check."""
        uid = pod["metadata"]["uid"]
        over = gone or pod.get("status", {}).get("phase") in ("Succeeded", "Failed")
        spec = pod["spec"]
        if over or not any(map(tpu_environment.chips, (*spec.get("initContainers", []), *spec["containers"]))):
            with self._lock:
                self._pods.pop(uid, None)
            return
        with self._lock:
            self._pods[uid] = pod
        self.line.add(uid)

    def serve(self) -> None:
        while (uid := self.line.take()) is not None:
            again = False
            try:
                self._look(uid)
            except TpukitError as error:
                _log.warning("pod %s: %s", uid, error)
                again = True
            except Exception:  # one pod must not end the loop of all  # noqa: BLE001
                _log.exception("pod %s", uid)
            self.line.done(uid)
            if again:
                self.line.add(uid, _RETRY_SECONDS)

    def _look(self, uid: str) -> None:
        with self._lock:
            pod = self._pods.pop(uid, None)
        message = tpu_environment.refusal(pod, self._labels_of(pod["spec"]["nodeName"])) if pod else ""
        if not pod or not message:
            return
        metadata, at = pod["metadata"], stamp(self._clock.now())
        not_ready = [
            {"type": kind, "status": "False", "reason": "PodFailed", "lastTransitionTime": at}
            for kind in ("Ready", "ContainersReady")
        ]
        status = {
            "phase": "Failed",
            "reason": "UnexpectedAdmissionError",
            "message": message,
            "conditions": not_ready,
            "containerStatuses": None,
            "initContainerStatuses": None,
        }
        change = {"metadata": {"uid": uid}, "status": status}
        with suppress(NotFound, Conflict):  # the pod was removed or replaced
            self._api.patch(
                "Pod", metadata["name"], change, metadata["namespace"], part="status", way="strategic-merge"
            )

    def _labels_of(self, node: str) -> dict[str, str]:
        if node not in self._labels:  # list them all, because the other hosts of the slice are needed next
            found = self._api.list("Node", labels=f"{LABEL[0]}={LABEL[1]}")
            self._labels = {one["metadata"]["name"]: one["metadata"]["labels"] for one in found}
            self._labels.setdefault(node, {})
        return self._labels[node]
