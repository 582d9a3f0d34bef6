"""Fit of a pod on an existing or possible node of a pool. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpubox.kubelet import node_fit
from tpubox.kubelet.env import quantity

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Scalable:
    """A pool, with its current or possible node."""

    full: str  # its name in Google's APIs
    labels: Mapping[str, str]
    taints: Sequence[Object]
    allocatable: Mapping[str, str]
    size: int  # nodes in each zone
    least: int
    most: int
    all_or_none: bool  # whether it has all of its nodes or none
    group: str = ""  # address of its instance group
    unfilled: str = ""  # why its last growth failed
    queued: bool = False  # its nodes are only provisioned for a ProvisioningRequest

    @property
    def next_size(self) -> int:
        return self.most if self.all_or_none else self.size + 1

    @property
    def zone(self) -> str:
        return self.group.partition("/zones/")[2].partition("/")[0]


def fits(pod: Object, pool: Scalable) -> bool:
    return not misfit(pod, pool)


def misfit(pod: Object, pool: Scalable) -> str:
    """Return why the pod does not fit on a node of the pool, in the scheduler's words; empty if it fits."""
    spec = pod["spec"]
    if not node_fit.selects(spec, pool.labels):
        return "node(s) didn't match Pod's node affinity/selector"
    closed = [taint for taint in pool.taints if taint["effect"] != "PreferNoSchedule"]
    for taint in closed:
        if not node_fit.tolerates(spec, taint):
            return f"node(s) had untolerated taint {{{taint['key']}: {taint.get('value', '')}}}"
    for what, amount in node_fit.requests(spec).items():
        if amount > quantity(pool.allocatable.get(what, "0")):
            return f"Insufficient {what}"
    return ""
