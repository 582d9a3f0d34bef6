"""Node labels and taints that match pods and flavors to pools: GKE's own for TPU pools, ours for the CPU pool.

A label of every TPU node names its provisioning: https://cloud.google.com/kubernetes-engine/docs/concepts/spot-vms and
https://cloud.google.com/kubernetes-engine/docs/concepts/dws document those of spot and flex-start nodes; on-demand TPU
nodes have `gke-provisioning=standard` in public node listings. Kueue compares only labels that some flavor of a queue
has, so every flavor and every pod names the provisioning: with `gke-spot` alone, a queue without spot slices would
treat a spot job as an on-demand one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from tpukit.catalogue import Slice, slices
from tpukit.jobs.spec import Reservation

Capacity = Literal["on-demand", "spot", "flex-start"] | Reservation
"""Capacity as a job file states it."""
CPU_POOL = ("tpukit.dev/pool", "cpu")
"""Label that Terraform sets on the CPU pool."""
SPOT = "cloud.google.com/gke-spot"
QUEUED = "cloud.google.com/gke-queued"
"""Taint of nodes that come only by queued provisioning."""
RESERVATION_NAME = "cloud.google.com/reservation-name"
PROVISIONING = "cloud.google.com/gke-provisioning"
RESERVED = "reservation:"
BLOCKS = "/reservationBlocks/"
SUB_BLOCKS = "/reservationSubBlocks/"


def capacity_word(capacity: Capacity) -> str:
    return f"{RESERVED}{capacity.reservation}" if isinstance(capacity, Reservation) else capacity


def whole_reservation(name: str) -> str:
    """Return the reservation that a pool uses, without the block: jobs and queues name the whole."""
    return name.partition(BLOCKS)[0]


def shape_labels(shape: Slice) -> dict[str, str]:
    """Return the labels that all pools of this shape share."""
    accelerator = {"cloud.google.com/gke-tpu-accelerator": shape.accelerator} if shape.accelerator else {}
    return {**accelerator, "cloud.google.com/gke-tpu-topology": shape.topology}


def capacity_labels(capacity: str) -> dict[str, str]:
    """Return the labels of nodes with this provisioning. Reserved nodes may also have `standard`."""
    if capacity.startswith(RESERVED):
        *project, name = capacity.removeprefix(RESERVED).removeprefix("projects/").split("/reservations/")
        owner = {"cloud.google.com/reservation-project": project[0]} if project else {}
        return {RESERVATION_NAME: name, **owner}
    own = {"spot": {SPOT: "true"}, "flex-start": {"cloud.google.com/gke-flex-start": "true"}}.get(capacity, {})
    return {**own, PROVISIONING: "standard" if capacity == "on-demand" else capacity}


def capacity_of(labels: Mapping[str, str]) -> str:
    """Return the provisioning of nodes with these labels."""
    if name := labels.get(RESERVATION_NAME):
        project = labels.get("cloud.google.com/reservation-project")
        return f"{RESERVED}projects/{project}/reservations/{name}" if project else f"{RESERVED}{name}"
    return next((word for word in ("spot", "flex-start") if labels.get(f"cloud.google.com/gke-{word}")), "on-demand")


def node_labels(shape: Slice, capacity: str) -> dict[str, str]:
    return shape_labels(shape) | capacity_labels(capacity)


def host_labels(shape: Slice, capacity: str) -> dict[str, str]:
    """Return the labels that only hosts of this shape and provisioning have.

    Where a topology exists on two machine types (2x4), the labels of the shape are not enough: a pod with 4 chips would
    never start on a host with 8, because it has to take all of them.
    """
    labels = shape_labels(shape)
    machine_types = {other.machine_type for other in slices() if shape_labels(other) == labels}
    if len(machine_types) > 1:
        labels["cloud.google.com/gke-accelerator-count"] = str(shape.chips_per_host)
    return labels | capacity_labels(capacity)


def absent_labels(capacity: str) -> tuple[str, ...]:
    """Return labels that nodes must not have: reserved slices are only for jobs that name the reservation."""
    return () if capacity.startswith(RESERVED) else (RESERVATION_NAME,)


def node_taints(capacity: str) -> tuple[tuple[str, str], ...]:
    """Return taints beyond GKE's own for TPU nodes: Terraform's for spot pools, GKE's for queued provisioning."""
    keys = {"spot": SPOT, "flex-start": QUEUED}
    return ((keys[capacity], "true"),) if capacity in keys else ()
