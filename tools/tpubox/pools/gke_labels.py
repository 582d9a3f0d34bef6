"""The labels that GKE gives to every node of a pool, regardless of who created the pool."""

from __future__ import annotations

from tpukit.catalogue import Slice
from tpukit.jobs.render import node_labels

POOL = "cloud.google.com/gke-nodepool"


def pool_labels(name: str, machine_type: str, shape: Slice | None, capacity: str, reservation: str) -> dict[str, str]:
    """Return the labels. `capacity` is on-demand, spot, flex-start or reservation, named by `reservation`."""
    google = "cloud.google.com"
    bought = f"{node_labels.RESERVED}{reservation}" if reservation else capacity
    labels = {
        POOL: name,
        f"{google}/machine-family": machine_type.partition("-")[0],
        "node.kubernetes.io/instance-type": machine_type,
        node_labels.PROVISIONING: "standard",
        **node_labels.capacity_labels(bought),
    }
    if shape:
        labels |= node_labels.shape_labels(shape)
        labels[f"{google}/gke-accelerator-count"] = str(shape.chips_per_host)
    return labels
