"""Conversion of pools of Google's APIs to pools of the node agent."""

from __future__ import annotations

from tpubox.google.wire.settings import Pool as GooglePool
from tpubox.kubelet.registered_pools import Pool


def of_google(pool: GooglePool) -> Pool:
    """Convert a pool, which must have nodes."""
    return Pool(
        pool.name,
        pool.machine_type,
        pool.nodes,
        topology=pool.slice.topology if pool.slice else "",
        capacity=pool.capacity,
        reservation=pool.reservation,
        labels=pool.labels,
        taints=pool.taints,
        max_pods=pool.max_pods,
        project=pool.project,
        cluster=pool.cluster_name,
    )
