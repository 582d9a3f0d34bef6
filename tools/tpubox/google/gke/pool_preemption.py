"""Machines of node pools that were preempted: their chips are anybody's meanwhile, and they return when there are
enough again.

Hosts are the node agent's. Whoever watches it says here that a pool's machines are gone, asks whether they may return,
and says that they have.
"""

from __future__ import annotations

from tpubox.google.compute import networks as compute
from tpubox.google.compute import stock_and_quota
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.state import Doc

PREEMPTED = "compute.instances.preempted"
"""https://cloud.google.com/compute/docs/instances/create-use-spot#detect_preemption"""


def gone(cloud: Cloud, full: str, mark: float) -> None:
    """They were preempted, as the zone's operations say from now on. Safe to repeat: each preemption has a mark of its
    own, as a pool may have returned and gone again between two looks."""
    with cloud.state.transaction():
        pool = cloud.state.get("pool", full)
        if pool is None or pool.get("_preemption") == mark:
            return
        _put(cloud, full, {**pool, "_preemption": mark}, "gone", up=False)
        for node, zone in pool["_nodes"].items():
            scope = f"projects/{full.split('/')[1]}/zones/{zone}"
            cloud.start(compute.api, PREEMPTED, scope, f"{scope}/instances/{node}")


def may_return(cloud: Cloud, full: str) -> bool:
    """Whether there are chips for it; then they are its own, whether or not its hosts are told in time."""
    with cloud.state.transaction():
        pool = cloud.state.get("pool", full)
        if pool is None or pool.get("_preempted") != "gone":
            return pool is not None
        try:
            if pool["_holds"]:
                stock_and_quota.find(cloud, Holding(**pool["_holds"]), full)
        except Refused:
            return False
        _put(cloud, full, pool, "returning", up=True)
        return True


def here(cloud: Cloud, full: str) -> None:
    """Its machines run, also where somebody brought them back who did not ask. Safe to repeat."""
    with cloud.state.transaction():
        pool = cloud.state.get("pool", full)
        if pool is not None and pool.get("_preempted"):
            _put(cloud, full, pool, "", up=True)


def _put(cloud: Cloud, full: str, pool: Doc, preempted: str, *, up: bool) -> None:
    holds = Holding(**pool["_holds"]).doc(up=up) if pool["_holds"] else None
    cloud.state.put("pool", full, {**pool, "_preempted": preempted, "_holds": holds})
