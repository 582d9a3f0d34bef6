"""Allocatable resources of a node: its capacity less what GKE reserves for the kubelet and the system."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal
from math import inf

from tpukit.core.quantities import amount

_GIB = 1 << 30
_CPU_SHARES = ((1, "0.06"), (1, "0.01"), (2, "0.005"), (inf, "0.0025"))  # of so many cores, from the first on
_MEMORY_SHARES = ((4, "0.25"), (4, "0.20"), (8, "0.10"), (112, "0.06"), (inf, "0.02"))  # of so many GiB
_SHARED_CORE = ("e2-micro", "e2-small", "e2-medium")
_SHARED_CORE_CPU = Decimal("1.06")
_MANY_PODS, _MANY_PODS_CPU = 110, Decimal("0.4")
_TINY_MEMORY = 255 << 20  # reserved on a machine with less than a GiB
_EVICTION_MEMORY = 100 << 20
_EVICTION_DISK = Decimal("0.1")


def allocatable(capacity: Mapping[str, str], machine_type: str = "") -> dict[str, str]:
    """Return what is left after GKE's reservation of CPU, memory and boot disk; other resources are left whole.

    https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes has the shares. The disk counts as large as
    its file system: GKE computes one part from each of the two, and the sandbox knows only one.
    """
    cpu, memory, disk = (amount(capacity[what]) for what in ("cpu", "memory", "ephemeral-storage"))
    kept_cpu = _SHARED_CORE_CPU if machine_type in _SHARED_CORE else _kept(cpu, _CPU_SHARES)
    if int(capacity["pods"]) > _MANY_PODS:
        kept_cpu += _MANY_PODS_CPU
    kept_memory = _kept(memory / _GIB, _MEMORY_SHARES) * _GIB if memory >= _GIB else Decimal(_TINY_MEMORY)
    kept_disk = min(disk / 2, 6 * _GIB + disk * Decimal("0.35"), Decimal(100 * _GIB)) + disk * _EVICTION_DISK
    return {
        **capacity,
        "cpu": f"{int((cpu - kept_cpu) * 1000)}m",
        "memory": f"{int(memory - kept_memory - _EVICTION_MEMORY) >> 10}Ki",
        "ephemeral-storage": str(int(disk - kept_disk)),
    }


def _kept(amount: Decimal, shares: tuple[tuple[float, str], ...]) -> Decimal:
    kept = Decimal(0)
    for width, share in shares:
        part = min(amount, Decimal(width))
        kept += part * Decimal(share)
        amount -= part
    return kept
