"""Preempted machines of node pools: their chips are free for others, and they return when enough are available.

The node agent owns the hosts. Its watcher reports here that a pool's machines are gone, asks for permission to return
them, and reports their return.
"""

from __future__ import annotations

from tpubox.google.compute import networks as compute
from tpubox.google.compute import stock_and_quota
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.refusal import Refused
from tpubox.google.wire.state import Doc

PREEMPTED = "compute.instances.preempted"
"""Operation type of a preemption.

https://cloud.google.com/compute/docs/instances/create-use-spot#detect_preemption
"""


def gone(cloud: Cloud, full: str, mark: float) -> None:
    """Record a preemption, which the zone's operations report from now on. Safe to repeat.

    Each preemption has its own mark, because a pool may return and be preempted again between two observations.
    """
    with cloud.state.transaction():
        pool = cloud.state.get("pool", full)
        if pool is None or pool.get("_preemption") == mark:
            return
        _put(cloud, full, {**pool, "_preemption": mark}, "gone", up=False)
        for node, zone in pool["_nodes"].items():
            scope = f"projects/{full.split('/')[1]}/zones/{zone}"
            cloud.start(compute.api, PREEMPTED, scope, f"{scope}/instances/{node}")


def may_return(cloud: Cloud, full: str) -> bool:
    """Return True if there are chips for the pool, and claim them for it until its hosts are up."""
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
    """Record that the pool's machines run, even if they were started without `may_return`. Safe to repeat."""
    with cloud.state.transaction():
        pool = cloud.state.get("pool", full)
        if pool is not None and pool.get("_preempted"):
            _put(cloud, full, pool, "", up=True)


def _put(cloud: Cloud, full: str, pool: Doc, preempted: str, *, up: bool) -> None:
    holds = Holding(**pool["_holds"]).doc(up=up) if pool["_holds"] else None
    cloud.state.put("pool", full, {**pool, "_preempted": preempted, "_holds": holds})
