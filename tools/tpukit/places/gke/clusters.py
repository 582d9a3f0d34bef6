"""The clusters reachable from this machine: the current one, and those that jobs were sent to.

A cluster has other names and addresses on other machines and from inside it. It is identified by its uid, or by its
address where the uid is unknown.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tpukit import kube
from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, NotFound, TpukitError
from tpukit.jobs.plan import ClusterName
from tpukit.kube import Cluster, Context

SERVER = "TPUKIT_CLUSTER_SERVER"
"""Variable of a pod: the external address of the cluster that the pod runs in."""
CONTEXTS_SECONDS = 10.0
_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The kubeconfig, or the pod that this process runs in."""

    contexts: Callable[[], Sequence[Context]] = kube.contexts
    current: Callable[[], str] = kube.current_context
    connect: Callable[[str], Cluster] = lambda context: Cluster(context=context or None)


class Clusters:
    """A cache that opens each cluster once. Thread-safe."""

    def __init__(self, clock: Clock, kubeconfig: Kubeconfig | None = None) -> None:
        self._clock, self._kubeconfig = clock, kubeconfig or Kubeconfig()
        self._lock = threading.Lock()
        self._opened: dict[str, Cluster] = {}
        self._uids: dict[str, str] = {}  # by context, as far as requested
        self._asked: dict[str, float] = {}
        self._asking: threading.Thread | None = None
        self._contexts: tuple[float, Sequence[Context]] | None = None

    def current(self) -> ClusterName:
        """Return the cluster that kubectl would use now."""
        context = self._kubeconfig.current()
        cluster = self._cluster(context)
        server = (os.environ.get(SERVER) if not context else None) or cluster.server
        return ClusterName(context, server.rstrip("/"), self._uid(context))

    def context(self, name: ClusterName) -> str | None:
        """Return the local context of this cluster, whatever its name was at the sender; None if there is none.

        Send no request: candidates that only their uid can identify are resolved in the background, for the next call.
        """
        contexts = self._known_contexts()
        same = [one for one in contexts if one.server and one.server == name.server.rstrip("/")]
        same.sort(key=lambda one: one.name != name.context)
        for one in same:
            if not name.uid or self._uids.get(one.name, name.uid) in (name.uid, ""):
                return one.name
        if not name.uid:
            return None
        for one in contexts:
            if self._uids.get(one.name) == name.uid:
                return one.name
        self._ask_in_background([one.name for one in contexts if one.name not in self._uids])
        return None

    def open(self, name: ClusterName) -> Cluster:
        """Open the cluster, and reject a context that no longer points to the cluster of the job."""
        context = self.context(name)
        if context is None:
            raise NotFound(
                f"no context of this kubeconfig leads to {name.server} (context {name.context} when the job was sent)",
                hint="`tpu cluster credentials` adds one; `tpu job forget` closes a job whose cluster is gone for good",
            )
        if name.uid and (uid := self._uid(context)) and uid != name.uid:
            raise Conflict(
                f"{name.server} is not the cluster that the job was sent to",
                hint="point the context at the earlier cluster; `tpu job forget` closes a job whose cluster is gone",
            )
        return self._cluster(context)

    def wait(self, seconds: float) -> None:
        """Wait for the background requests."""
        thread = self._asking
        if thread is not None:
            thread.join(seconds)

    def _known_contexts(self) -> Sequence[Context]:
        now = self._clock.monotonic()
        if self._contexts is None or now - self._contexts[0] >= CONTEXTS_SECONDS:
            try:
                contexts = [replace(one, server=one.server.rstrip("/")) for one in self._kubeconfig.contexts()]
                if not contexts and not self._kubeconfig.current():  # inside a pod
                    contexts = [Context("", os.environ.get(SERVER, "").rstrip("/"))]
            except TpukitError:  # no usable kubeconfig: no cluster is reachable
                contexts = []
            self._contexts = now, contexts
        return self._contexts[1]

    def _cluster(self, context: str) -> Cluster:
        with self._lock:
            known = self._opened.get(context)
        if known is None:
            known = self._kubeconfig.connect(context)
            with self._lock:
                known = self._opened.setdefault(context, known)
        return known

    def _uid(self, context: str) -> str:
        if context not in self._uids:
            self._uids[context] = self._cluster(context).identity()
        return self._uids[context]

    def _ask_in_background(self, contexts: Sequence[str]) -> None:
        now = self._clock.monotonic()
        with self._lock:
            due = [one for one in contexts if now - self._asked.get(one, -_AGAIN_SECONDS) >= _AGAIN_SECONDS]
            if not due or (self._asking is not None and self._asking.is_alive()):
                return
            self._asked |= dict.fromkeys(due, now)
            self._asking = threading.Thread(target=self._ask, args=(due,), name="clusters", daemon=True)
            self._asking.start()

    def _ask(self, contexts: Sequence[str]) -> None:
        for context in contexts:
            try:
                self._uid(context)
            except TpukitError:
                continue  # unreachable now: retried later
