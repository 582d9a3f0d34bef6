"""Kubernetes events: each step, as `kubectl describe` shows it to the user who waits for it.

The name of an event is derived from its content, so that repeating it, from this replica or another, creates no new
event.
"""

from __future__ import annotations

import hashlib
import logging
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from tpukit.core import fence
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, LeaseLost, TpukitError
from tpukit.kube import Cluster

COMPONENT = "tpu-provisioner"
_ON_POD = ("NodePoolCreating", "NodePoolForeign", "NodePoolImpossible")
"""Reasons of events on the pod, where users look for why it is pending."""
_ON_JOBSET = ("NodePoolImpossible",)
_NORMAL = ("NodePoolCreating", "NodePoolReady", "NodePoolDeleting")
_MOST_REMEMBERED = 10_000
_WRITERS = 2
"""Number of threads: a busy API server serves requests for pods before it receives events."""
_LONGEST = 1000
log = logging.getLogger("tpukit.provisioner")


@dataclass(frozen=True, slots=True)
class About:
    namespace: str
    jobset: str = ""
    jobset_uid: str = ""
    pod: str = ""
    pod_uid: str = ""


class Events:
    """A writer of events. Safe from any thread.

    An event that cannot be written does not stop the action it reports. With `background`, events are written in
    another thread.
    """

    def __init__(self, cluster: Cluster, clock: Clock, *, background: bool = False) -> None:
        self._cluster, self._clock = cluster, clock
        self._lock = threading.Lock()
        self._done: dict[str, None] = {}
        self._writer = ThreadPoolExecutor(_WRITERS, thread_name_prefix="events") if background else None

    def close(self) -> None:
        """Wait until all events are written."""
        if self._writer is not None:
            self._writer.shutdown()

    def tell(self, about: About, reason: str, text: str) -> None:
        targets = []
        if about.pod and reason in _ON_POD:
            targets.append(("v1", "Pod", about.pod, about.pod_uid))
        if about.jobset and (reason not in _ON_POD or reason in _ON_JOBSET):
            targets.append(("jobset.x-k8s.io/v1alpha2", "JobSet", about.jobset, about.jobset_uid))
        for target in targets:
            self._write(about.namespace, target, reason, text[:_LONGEST])

    def _write(self, namespace: str, target: tuple[str, str, str, str], reason: str, text: str) -> None:
        version, kind, name, uid = target
        mark = hashlib.sha256(f"{uid} {reason} {text}".encode()).hexdigest()[:16]
        with self._lock:
            if mark in self._done:
                return
            if len(self._done) >= _MOST_REMEMBERED:
                self._done.pop(next(iter(self._done)))
            self._done[mark] = None
        at = datetime.fromtimestamp(self._clock.now(), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": f"{name[:200]}.{mark}", "namespace": namespace},
            "involvedObject": {"apiVersion": version, "kind": kind, "namespace": namespace, "name": name, "uid": uid},
            "reason": reason,
            "message": text,
            "type": "Normal" if reason in _NORMAL else "Warning",
            "source": {"component": COMPONENT},
            "firstTimestamp": at,
            "lastTimestamp": at,
            "count": 1,
        }
        if self._writer is None:
            self._create(event, mark)
        else:
            self._writer.submit(fence.carry(self._create), event, mark)

    def _create(self, event: dict[str, Any], mark: str) -> None:
        try:
            self._cluster.create(event)
        except LeaseLost:
            self._forget(mark)  # the replica that leads now reports its own actions
        except Conflict:
            return  # written before
        except TpukitError as error:
            self._forget(mark)
            log.warning("an event could not be written", extra={"error": str(error), "event": event["reason"]})

    def _forget(self, mark: str) -> None:
        with self._lock:
            self._done.pop(mark, None)
