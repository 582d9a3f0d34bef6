"""The node labels and taints by which pods and flavors find their pool: GKE's own for TPU pools, ours for the CPU pool.

Every TPU node says how it was bought in a label: https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms and
https://cloud.google.com/kubernetes-engine/docs/concepts/dws name those of spot and flex-start nodes; an on-demand TPU
node has `gke-provisioning=standard` in public node listings. Kueue compares only labels that some flavor of a queue
has, so every flavor and every pod names the way: with `gke-spot` alone, a queue without spot slices would take a spot
job for an on-demand one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tpukit.catalogue import Slice, slices
from tpukit.jobs.spec import Reservation

Capacity = Literal["on-demand", "spot", "flex-start"] | Reservation
"""As a job says it."""
CPU_POOL = ("tpukit.dev/pool", "cpu")
"""Set on the CPU pool by Terraform."""
SPOT = "cloud.google.com/gke-spot"
QUEUED = "cloud.google.com/gke-queued"
"""Taint of nodes that come by queued provisioning alone."""
RESERVATION_NAME = "cloud.google.com/reservation-name"
PROVISIONING = "cloud.google.com/gke-provisioning"
RESERVED = "reservation:"
BLOCKS = "/reservationBlocks/"
SUB_BLOCKS = "/reservationSubBlocks/"


def capacity_word(capacity: Capacity) -> str:
    return f"{RESERVED}{capacity.reservation}" if isinstance(capacity, Reservation) else capacity


def whole_reservation(name: str) -> str:
    """Return the reservation that a pool takes from, without the block: jobs and queues name the whole."""
    return name.partition(BLOCKS)[0]


def shape_labels(shape: Slice) -> dict[str, str]:
    """What all pools of this shape have in common."""
    accelerator = {"cloud.google.com/gke-tpu-accelerator": shape.accelerator} if shape.accelerator else {}
    return {**accelerator, "cloud.google.com/gke-tpu-topology": shape.topology}


def capacity_labels(capacity: str) -> dict[str, str]:
    """What sets nodes bought in this way apart. Reserved ones may be `standard` beside their reservation's name."""
    if capacity.startswith(RESERVED):
        *project, name = capacity.removeprefix(RESERVED).removeprefix("projects/").split("/reservations/")
        owner = {"cloud.google.com/reservation-project": project[0]} if project else {}
        return {RESERVATION_NAME: name, **owner}
    own = {"spot": {SPOT: "true"}, "flex-start": {"cloud.google.com/gke-flex-start": "true"}}.get(capacity, {})
    return {**own, PROVISIONING: "standard" if capacity == "on-demand" else capacity}


def capacity_of(labels: Mapping[str, str]) -> str:
    """The reverse: how nodes with these labels were bought."""
    if name := labels.get(RESERVATION_NAME):
        project = labels.get("cloud.google.com/reservation-project")
        return f"{RESERVED}projects/{project}/reservations/{name}" if project else f"{RESERVED}{name}"
    return next((word for word in ("spot", "flex-start") if labels.get(f"cloud.google.com/gke-{word}")), "on-demand")


def node_labels(shape: Slice, capacity: str) -> dict[str, str]:
    return shape_labels(shape) | capacity_labels(capacity)


def host_labels(shape: Slice, capacity: str) -> dict[str, str]:
    """What sets the hosts of this shape, bought in this way, apart from all others.

    Where a topology comes on two machine types (2x4), the labels of the shape are not enough: a pod with 4 chips would
    never start on a host with 8, because it has to take all of them.
    """
    labels = shape_labels(shape)
    machine_types = {other.machine_type for other in slices() if shape_labels(other) == labels}
    if len(machine_types) > 1:
        labels["cloud.google.com/gke-accelerator-count"] = str(shape.chips_per_host)
    return labels | capacity_labels(capacity)


def absent_labels(capacity: str) -> tuple[str, ...]:
    """Labels that the nodes may not have: reserved slices are for those that name the reservation."""
    return () if capacity.startswith(RESERVED) else (RESERVATION_NAME,)


def node_taints(capacity: str) -> tuple[tuple[str, str], ...]:
    """Taints beyond GKE's own of all TPU nodes: Terraform gives spot pools theirs, GKE those of queued provisioning."""
    keys = {"spot": SPOT, "flex-start": QUEUED}
    return ((keys[capacity], "true"),) if capacity in keys else ()
