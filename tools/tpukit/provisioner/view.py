"""What the API server has, from mirrors: nobody is asked when somebody wants to know."""

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
"""A mirror that has heard nothing for longer does not say what is gone. One that is connected hears a bookmark every
minute; one whose process was suspended is not, and does not know it yet."""


class View(Protocol):
    def jobsets(self) -> tuple[Doc, ...]: ...

    def leaders(self) -> tuple[Doc, ...]: ...

    def nodes(self) -> tuple[Doc, ...]:
        """Of pools that carry our labels."""

    def config(self) -> Doc | None: ...

    def trouble(self, now: float) -> str:
        """Why the above may be out of date; empty: it is not. `now`: as `Clock.elapsed` counts, which no one sets."""

    def pods(self) -> list[Doc]:
        """All that are placed on a node, asked for now."""


class MirrorView:
    def __init__(self, cluster: Cluster, namespace: str, config: str, wake: Callable[[], None]) -> None:
        self._cluster = cluster
        self._jobsets = Mirror(cluster, "JobSet", type=JobSetDoc, wake=wake)
        self._leaders = Mirror(cluster, "Pod", labels=LEADERS, type=LeaderDoc, wake=wake)
        # Hosts report all the time: nobody is woken by that.
        self._nodes = Mirror(cluster, "Node", labels=NODES, type=HostDoc)
        self._config = Mirror(cluster, "ConfigMap", namespace, fields=f"metadata.name={config}", wake=wake)
        self._all = (self._jobsets, self._leaders, self._nodes, self._config)

    def wait_synced(self, seconds: float) -> TpukitError | None:
        """What keeps one of them from its first list, if something does."""
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
                return f"the cluster was not read yet: {mirror.error() or 'it does not answer'}"
            if now - mirror.fresh() > STALE_SECONDS:
                return f"the cluster is not read just now: {mirror.error() or 'nothing was heard from it for a while'}"
        return ""

    def pods(self) -> list[Doc]:
        return self._cluster.list(
            "Pod", fields="spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed", type=PlacedDoc
        )

    def close(self) -> None:
        for mirror in self._all:
            mirror.close()


class ListView:
    """The same by lists, once: for those who look once."""

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
