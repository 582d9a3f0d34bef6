"""Resources of a TPU host, and the share of them that its one pod requests."""

from __future__ import annotations

from tpukit.catalogue import Slice, slices

_SMALLEST = (24, 48)
"""vCPUs and GB of the smallest TPU host, for hosts without published figures."""


def machine(shape: Slice) -> tuple[int, int]:
    """Return vCPUs and GB of memory of one host. Unpublished figures are derived per chip from the same generation."""
    if shape.host_vcpus and shape.host_memory_gb:
        return shape.host_vcpus, shape.host_memory_gb
    for other in slices():
        if other.generation == shape.generation and other.host_vcpus and other.host_memory_gb:
            share = shape.chips_per_host / other.chips_per_host
            return int(other.host_vcpus * share), int(other.host_memory_gb * share)
    return _SMALLEST


def cpu(shape: Slice) -> int:
    """Return the vCPUs that a pod requests. The rest is for GKE's own pods and injected sidecars."""
    return machine(shape)[0] * 80 // 100


def memory_gb(shape: Slice) -> int:
    """Return the GB of memory that a pod requests and is limited to.

    GKE keeps about a tenth of a small machine and a thirtieth of a large one for itself
    (https://cloud.google.com/kubernetes-engine/docs/concepts/plan-node-sizes).
    """
    return machine(shape)[1] * 85 // 100
