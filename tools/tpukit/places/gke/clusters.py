"""The clusters that this machine can reach: the one that jobs are sent to now, and those that they were sent to.

A cluster has other names and addresses on other machines and from inside it. What it is known by everywhere is its uid;
where that is not known, its address.
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
"""Variable of a pod: the address by which people outside know the cluster that the pod runs in."""
CONTEXTS_SECONDS = 10.0
_AGAIN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """The kubeconfig, or the pod that this runs in."""

    contexts: Callable[[], Sequence[Context]] = kube.contexts
    current: Callable[[], str] = kube.current_context
    connect: Callable[[str], Cluster] = lambda context: Cluster(context=context or None)


class Clusters:
    """Opens each once. Safe from any thread."""

    def __init__(self, clock: Clock, kubeconfig: Kubeconfig | None = None) -> None:
        self._clock, self._kubeconfig = clock, kubeconfig or Kubeconfig()
        self._lock = threading.Lock()
        self._opened: dict[str, Cluster] = {}
        self._uids: dict[str, str] = {}  # by context, as far as they were asked for
        self._asked: dict[str, float] = {}
        self._asking: threading.Thread | None = None
        self._contexts: tuple[float, Sequence[Context]] | None = None

    def current(self) -> ClusterName:
        """Where kubectl would go now."""
        context = self._kubeconfig.current()
        cluster = self._cluster(context)
        server = (os.environ.get(SERVER) if not context else None) or cluster.server
        return ClusterName(context, server.rstrip("/"), self._uid(context))

    def context(self, name: ClusterName) -> str | None:
        """The context that leads to this cluster from here, whatever it was called where the job was sent from; None:
        there is none. Asks nobody: who may be it by its uid alone is asked in the background, and known next time."""
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
        """A context may have come to mean another cluster since: nothing is done there in the name of an old job."""
        context = self.context(name)
        if context is None:
            raise NotFound(
                f"no context of this kubeconfig leads to {name.server} (context {name.context} when the job was sent)",
                hint="`tpu cluster credentials` gets one; `tpu job forget` closes a job whose cluster is gone for good",
            )
        if name.uid and (uid := self._uid(context)) and uid != name.uid:
            raise Conflict(
                f"{name.server} is another cluster than when the job was sent",
                hint="point the context at the cluster of before; `tpu job forget` closes a job whose cluster is gone",
            )
        return self._cluster(context)

    def wait(self, seconds: float) -> None:
        """For what is asked in the background."""
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
            except TpukitError:  # no kubeconfig, or a broken one: nothing can be reached by it
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
                continue  # away just now: asked again later
