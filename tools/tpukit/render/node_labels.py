"""The node labels by which pods and flavors find their pool: GKE's own for TPU pools, ours for the CPU pool."""

from __future__ import annotations

from typing import Literal

from tpukit.catalogue import Slice, slices
from tpukit.spec import Reservation

CPU_POOL = ("tpukit.dev/pool", "cpu")
"""Set on the CPU pool by Terraform."""
SPOT = "cloud.google.com/gke-spot"


def shape_labels(shape: Slice) -> dict[str, str]:
    """What all pools of this shape have in common."""
    accelerator = {"cloud.google.com/gke-tpu-accelerator": shape.accelerator} if shape.accelerator else {}
    return {**accelerator, "cloud.google.com/gke-tpu-topology": shape.topology}


def host_labels(shape: Slice) -> dict[str, str]:
    """What sets the hosts of this shape apart from all others.

    Where a topology comes on two machine types (2x4), the labels of the shape are not enough: a pod with 4 chips would
    never start on a host with 8, because it has to take all of them.
    """
    labels = shape_labels(shape)
    machine_types = {other.machine_type for other in slices() if shape_labels(other) == labels}
    if len(machine_types) > 1:
        labels["cloud.google.com/gke-accelerator-count"] = str(shape.chips_per_host)
    return labels


def capacity_labels(capacity: Literal["on-demand", "spot", "flex-start"] | Reservation) -> dict[str, str]:
    if isinstance(capacity, Reservation):
        *project, name = capacity.reservation.removeprefix("projects/").split("/reservations/")
        owner = {"cloud.google.com/reservation-project": project[0]} if project else {}
        return {"cloud.google.com/reservation-name": name, **owner}
    return {"spot": {SPOT: "true"}, "flex-start": {"cloud.google.com/gke-flex-start": "true"}}.get(capacity, {})
