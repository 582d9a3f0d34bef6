"""Selection of nodes for removal by the cluster autoscaler: those that no pod has used for a while.

Pods of DaemonSets do not count. A slice of several hosts is removed as a whole; other pools lose exactly the idle
nodes. GKE also consolidates pods when a node is less than half used; here a node with a pod stays.
https://cloud.google.com/kubernetes-engine/docs/concepts/cluster-autoscaler
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpubox.kubelet.draining import of_daemon_set
from tpubox.pools.pool_fit import Scalable

IDLE_SECONDS = 600.0

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Shrink:
    """A pool size in each zone, and the nodes to remove; an empty tuple leaves the choice open."""

    size: int
    gone: tuple[str, ...] = ()


class IdleNodes:
    def __init__(self) -> None:
        self._since: dict[str, float] = {}  # by node; by pool if it has none

    def shrinks(
        self, pools: Iterable[Scalable], nodes: Mapping[str, Mapping[str, str]], pods: Iterable[Object], now: float
    ) -> dict[str, Shrink]:
        """Return the shrinks by pool, from the nodes of each pool with their zones and all active pods."""
        used = {pod["spec"].get("nodeName", "") for pod in pods if not of_daemon_set(pod)}
        large = [pool for pool in pools if pool.size > pool.least]
        there = {pool.full: list(nodes.get(pool.full, {})) or [pool.full] for pool in large}
        idle = [name for names in there.values() for name in names if name not in used]
        self._since = {name: self._since.get(name, now) for name in idle}
        found: dict[str, Shrink] = {}
        for pool in large:
            names = there[pool.full]
            spare = [name for name in names if now - self._since.get(name, now) >= IDLE_SECONDS]
            if len(spare) == len(names):
                found[pool.full] = Shrink(pool.least)
            elif spare and not pool.all_or_none:
                shrink = _without(pool, nodes[pool.full], spare)
                found |= {pool.full: shrink} if shrink.gone else {}
        return found


def _without(pool: Scalable, zones: Mapping[str, str], spare: Sequence[str]) -> Shrink:
    """Remove equally many nodes in each zone: a pool has one size for all zones."""
    by_zone = {zone: [name for name in spare if zones[name] == zone] for zone in zones.values()}
    fewer = min(pool.size - pool.least, *map(len, by_zone.values()))
    return Shrink(pool.size - fewer, tuple(name for names in by_zone.values() for name in names[:fewer]))
