"""The API server's objects from mirrors: reads are served from a watch cache."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from tpukit.core.errors import TpukitError
from tpukit.kube import Cluster, Doc
from tpukit.kube.mirror import Mirror
from tpukit.provisioner import pool_names
from tpukit.provisioner.documents import LEADERS, HostDoc, JobSetDoc, LeaderDoc, PlacedDoc

NODES = f"{pool_names.MANAGED_BY}={pool_names.MANAGER}"
STALE_SECONDS = 120.0
"""Seconds without news after which a mirror is not trusted about deletions.

A connected mirror receives a bookmark every minute. After a suspension, it may be disconnected without knowing.
"""


class View(Protocol):
    def jobsets(self) -> tuple[Doc, ...]: ...

    def leaders(self) -> tuple[Doc, ...]: ...

    def nodes(self) -> tuple[Doc, ...]:
        """Return the nodes of pools that carry our labels."""

    def config(self) -> Doc | None: ...

    def trouble(self, now: float) -> str:
        """Return why the objects may be out of date, or "" if they are not. `now` is a time of `Clock.elapsed`."""

    def pods(self) -> list[Doc]:
        """Return all pods that are placed on a node, read now."""


class MirrorView:
    def __init__(self, cluster: Cluster, namespace: str, config: str, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._jobsets = Mirror(cluster, "JobSet", type=JobSetDoc, wake=wake)
        self._leaders = Mirror(cluster, "Pod", labels=LEADERS, type=LeaderDoc, wake=wake)
        # Hosts report constantly, so their changes wake nothing.
        self._nodes = Mirror(cluster, "Node", labels=NODES, type=HostDoc)
        self._config = Mirror(cluster, "ConfigMap", namespace, fields=f"metadata.name={config}", wake=wake)
        self._all = (self._jobsets, self._leaders, self._nodes, self._config)

    def wait_synced(self, seconds: float) -> TpukitError | None:
        """Return the error that keeps a mirror from its first list, if any."""
        for mirror in self._all:
            if not mirror.wait_synced(seconds) and (error := mirror.error()):
                return error
        return None

    def jobsets(self) -> tuple[Doc, ...]:
        return self._jobsets.objects()

    def leaders(self) -> tuple[Doc, ...]:
        return self._leaders.objects()

    def nodes(self) -> tuple[Doc, ...]:
        return self._nodes.objects()

    def config(self) -> Doc | None:
        return next(iter(self._config.objects()), None)

    def trouble(self, now: float) -> str:
        for mirror in self._all:
            if not mirror.fresh():
                return f"the cluster has not been read yet: {mirror.error() or 'no response'}"
            if now - mirror.fresh() > STALE_SECONDS:
                return f"the cluster cannot be read now: {mirror.error() or 'no update for a while'}"
        return ""

    def pods(self) -> list[Doc]:
        return self._cluster.list(
            "Pod", fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed", type=PlacedDoc
        )

    def close(self) -> None:
        for mirror in self._all:
            mirror.close()


class ListView:
    """A view from one list of each kind, for a single observation."""

    def __init__(self, cluster: Cluster, namespace: str, config: str) -> None:
        self._cluster = cluster
        self._jobsets = tuple(cluster.list("JobSet", type=JobSetDoc))
        self._leaders = tuple(cluster.list("Pod", labels=LEADERS, type=LeaderDoc))
        self._nodes = tuple(cluster.list("Node", labels=NODES, type=HostDoc))
        maps = cluster.list("ConfigMap", namespace, fields=f"metadata.name={config}")
        self._config = next(iter(maps), None)

    def jobsets(self) -> tuple[Doc, ...]:
        return self._jobsets

    def leaders(self) -> tuple[Doc, ...]:
        return self._leaders

    def nodes(self) -> tuple[Doc, ...]:
        return self._nodes

    def config(self) -> Doc | None:
        return self._config

    def trouble(self, now: float) -> str:
        return ""

    def pods(self) -> list[Doc]:
        return MirrorView.pods(self)  # type: ignore[arg-type]
