"""The clusters of this person's kubeconfig: the one that jobs are sent to now, and those that they were sent to."""

from __future__ import annotations

from tpukit.errors import Conflict
from tpukit.kube import Cluster, current_context
from tpukit.plan import ClusterName


class Clusters:
    """Opens each once."""

    def __init__(self) -> None:
        self._open: dict[str, Cluster] = {}

    def current(self) -> ClusterName:
        """Where kubectl would go now."""
        context = current_context()
        return ClusterName(context, self._cluster(context).server)

    def open(self, name: ClusterName) -> Cluster:
        """A context may have come to mean another cluster since: nothing is done there in the name of an old job."""
        cluster = self._cluster(name.context)
        if cluster.server != name.server:
            raise Conflict(
                f"the kubeconfig's context {name.context} led to {name.server} and now leads to {cluster.server}",
                hint="the job is on the cluster of before: point the context there again",
            )
        return cluster

    def _cluster(self, context: str) -> Cluster:
        if context not in self._open:
            self._open[context] = Cluster(context=context or None)
        return self._open[context]
