"""Checks of node pools against the catalogue: machine type, topology, number of nodes, zone and capacity.

A pool of TPU machines is one slice of several hosts, created as a whole, or any number of single-host slices. GKE
refuses these pools at the request, before it creates anything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from tpubox.google.compute import machine_types
from tpubox.google.compute.stock_and_quota import Holding
from tpubox.google.gke import pool_fields
from tpubox.google.gke.cluster_fields import check_zones
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.sources import GKE_DISK, GKE_MACHINE_TYPE, GKE_QUEUED_TPU, GUESS
from tpubox.google.wire.state import Doc
from tpukit.catalogue import Slice, slices
from tpukit.catalogue.zones import is_ai_zone, offers
from tpukit.jobs.render.node_labels import whole_reservation

_TPU = re.compile(r"(ct[0-9]|tpu)[a-z0-9]*-.*")
_RESERVATION = re.compile(
    r"(projects/[^/]+/reservations/)?[^/]+(/reservationBlocks/[^/]+(/reservationSubBlocks/[^/]+)?)?"
)
"""Form of reservation names.

Blocks are named as in https://github.com/AI-Hypercomputer/xpk (src/xpk/core/reservation.py).
"""
_SHUTDOWN_SECONDS = (0, 30, 120)
"""Grace periods that GKE accepts, for Spot VMs only.

https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeKubeletConfig
"""
_HYPERDISK_ONLY = ("v6e", "tpu7x")
_HYPERDISK_FAMILIES = ("c4", "c4a", "c4d", "n4", "n4a", "n4d")
_QUEUED = ("v6e", "tpu7x")
"""Generations that Google serves by queued provisioning since February 2026.

https://github.com/GoogleCloudPlatform/cluster-toolkit/pull/5218. Before, it refused all; no source names others.
"""


@dataclass(frozen=True, slots=True)
class PoolRequest:
    """The slice, nodes and chips that a pool requests."""

    slice: Slice | None
    nodes: int  # in each zone, now
    holding: Holding | None

    @property
    def several_hosts(self) -> bool:
        return self.slice is not None and self.slice.hosts > 1


def check(cloud: Cloud, cluster: Doc, pool: Doc) -> PoolRequest:
    """Return the request of a pool, or refuse a pool that GKE would refuse."""
    config = pool["config"]
    zones: list[str] = pool["locations"]
    machine_type = config["machineType"]
    check_zones(zones, cluster["_region"])
    if pool["initialNodeCount"] < 0:
        raise GUESS.invalid("Invalid value for field 'node_pool.initial_node_count': it must not be negative.")
    pool_fields.check(cluster, pool)
    channel = cluster.get("releaseChannel", {}).get("channel", "UNSPECIFIED")
    if channel != "UNSPECIFIED" and not pool["management"].get("autoUpgrade"):
        raise GUESS.invalid(f"Auto_upgrade must be true when release_channel {channel} is set.")
    capacity = _check_capacity(pool)
    shape = _slice(cloud, cluster, pool)
    if shape is None:
        if pool.get("placementPolicy", {}).get("tpuTopology"):
            raise GUESS.invalid(f"TPU topology is set, and machine type {machine_type} has no TPUs.")
        _check_cpu_machines(machine_type, zones)
        _check_cpu_disk(machine_type, config["diskType"])
        return PoolRequest(None, pool["initialNodeCount"], None)
    for zone in zones:
        if zone not in shape.zones:
            raise GUESS.invalid(f'Machine type "{machine_type}" is not available in zone "{zone}".')
    _check_no_gpu(config)
    if pool.get("queuedProvisioning", {}).get("enabled") and shape.generation not in _QUEUED:
        raise GKE_QUEUED_TPU.invalid("Flex start node pools don't support TPUs with queued provisioning.")
    hyperdisk = config["diskType"] == "hyperdisk-balanced"
    if hyperdisk != (shape.generation in _HYPERDISK_ONLY):
        raise GUESS.invalid(f"Disk type {config['diskType']} is not supported by machine type {machine_type}.")
    if shape.hosts > 1:
        _check_slice(pool, shape, zones)
    nodes = pool["initialNodeCount"]
    chips = nodes * shape.chips_per_host * len(zones)
    reservation = whole_reservation(config.get("reservationAffinity", {}).get("values", [""])[0]).rpartition("/")[2]
    return PoolRequest(shape, nodes, Holding(zones[0], shape.generation, chips, capacity == "spot", reservation))


def capacity_of(config: Doc) -> str:
    if config.get("spot") or config.get("preemptible"):
        return "spot"
    if config.get("flexStart"):
        return "flex-start"
    specific = config.get("reservationAffinity", {}).get("consumeReservationType") == "SPECIFIC_RESERVATION"
    return "reservation" if specific else "on-demand"


def _check_capacity(pool: Doc) -> str:
    config = pool["config"]
    affinity = config.get("reservationAffinity", {})
    reserved = affinity.get("consumeReservationType") == "SPECIFIC_RESERVATION"
    if sum((bool(config.get("spot")), bool(config.get("flexStart")), reserved)) > 1:
        raise GUESS.invalid("Spot, flex-start and a specific reservation exclude each other.")
    if reserved and (affinity.get("key") != "compute.googleapis.com/reservation-name" or not affinity.get("values")):
        raise GUESS.invalid(
            "A specific reservation needs the key compute.googleapis.com/reservation-name and the name as its value."
        )
    if reserved and not _RESERVATION.fullmatch(affinity["values"][0]):
        raise GUESS.invalid(f"Invalid reservation name {affinity['values'][0]!r}.")
    grace = config.get("kubeletConfig", {}).get("shutdownGracePeriodSeconds")
    if grace is not None and (not config.get("spot") or grace not in _SHUTDOWN_SECONDS):
        raise GUESS.invalid(
            "Invalid value for field 'kubelet_config.shutdown_grace_period_seconds': "
            f"{grace} is not one of 0, 30 and 120 for Spot VMs."
        )
    if config.get("flexStart"):
        if not pool.get("autoscaling", {}).get("enabled") or pool["initialNodeCount"]:
            raise GUESS.invalid("Flex-start node pools must have autoscaling and start with 0 nodes.")
        if pool["management"].get("autoRepair"):
            raise GUESS.invalid("Auto_repair must be false for flex-start node pools.")
        if affinity.get("consumeReservationType") != "NO_RESERVATION":
            raise GUESS.invalid("Flex-start node pools must not use reservations: set NO_RESERVATION.")
    elif pool.get("queuedProvisioning", {}).get("enabled"):
        raise GUESS.invalid("Queued provisioning of TPUs needs flex-start.")
    return capacity_of(config)


def _slice(cloud: Cloud, cluster: Doc, pool: Doc) -> Slice | None:
    """Return the slice that the pool describes; None for nodes without TPUs."""
    machine_type = pool["config"]["machineType"]
    policy = pool.get("placementPolicy", {})
    offered = [shape for shape in slices() if shape.machine_type == machine_type]
    if not offered:
        if _TPU.fullmatch(machine_type):
            raise GUESS.invalid(
                f'Machine type with name "{machine_type}" does not exist in zone "{pool["locations"][0]}".'
            )
        return None
    several = [shape for shape in offered if shape.hosts > 1]
    alone = next((shape for shape in offered if shape.hosts == 1), None)
    topology = policy.get("tpuTopology")
    if several and several[0].placement == "policy":
        if topology or policy.get("type") == "COMPACT":
            raise GUESS.invalid(
                f"Machine type {machine_type} takes no compact placement or TPU topology: use workload policy instead."
            )
        topology = _policy_topology(cloud, cluster, policy["policyName"]) if policy.get("policyName") else None
    if not topology:
        if alone is None:
            raise GUESS.invalid(f"Machine type {machine_type} is for multi-host TPU slices: set the TPU topology.")
        return alone
    found = next((shape for shape in several if shape.topology == topology), None)
    if found:
        return found
    if alone is not None and topology == alone.topology:
        raise GUESS.invalid(f"TPU topology must not be set for single-host TPU slices (machine type {machine_type}).")
    known = ", ".join(shape.topology for shape in several[:8])
    raise GUESS.invalid(
        f"TPU topology {topology} is not supported by machine type {machine_type}. Supported: {known}, ..."
    )


def _check_cpu_machines(machine_type: str, zones: list[str]) -> None:
    """Refuse a CPU machine type that the zone does not offer.

    The error text is that of https://github.com/keras-team/kinetic/issues/305 for e2-standard-4 in us-central2-b.
    Refusing all CPU machines in AI zones is stricter than Google's page, which calls them limited there.
    """
    for zone in zones:
        known = machine_types.exists(machine_type) and offers(zone, machine_type) is not False
        if is_ai_zone(zone) or not known:
            raise GKE_MACHINE_TYPE.invalid(f'Invalid machine type "{machine_type}" in zone "{zone}": GCE_NOT_FOUND.')


def _check_cpu_disk(machine_type: str, disk: str) -> None:
    """Refuse persistent disks for the newest families, which boot from Hyperdisk only.

    https://github.com/nextflow-io/nextflow/issues/6614
    """
    if machine_type.partition("-")[0] in _HYPERDISK_FAMILIES and not disk.startswith("hyperdisk-"):
        raise GKE_DISK.invalid(f"[{disk}, {machine_type}] features are not compatible for creating instance.")


def _check_no_gpu(config: Doc) -> None:
    """Refuse GPUs: TPUs are part of their machines, which accept no other accelerators."""
    for one in config.get("accelerators") or ():
        if str(one.get("acceleratorType", "")).startswith("nvidia"):
            raise GUESS.invalid(
                f"Accelerator type {one['acceleratorType']} is not supported by machine type {config['machineType']}."
            )


def _policy_topology(cloud: Cloud, cluster: Doc, name: str) -> str:
    full = f"projects/{cluster['_project']}/regions/{cluster['_region']}/resourcePolicies/{name.rpartition('/')[2]}"
    policy = cloud.state.get("resourcePolicy", full)
    if policy is None:
        raise GUESS.invalid(
            f"Resource policy {full} was not found: it must be in the project and region of the cluster."
        )
    workload = policy.get("workloadPolicy", {})
    if workload.get("type") != "HIGH_THROUGHPUT" or not workload.get("acceleratorTopology"):
        raise GUESS.invalid(f"Resource policy {full} is no workload policy of type HIGH_THROUGHPUT with a topology.")
    return str(workload["acceleratorTopology"])


def _check_slice(pool: Doc, shape: Slice, zones: list[str]) -> None:
    if len(zones) != 1:
        raise GUESS.invalid(f"A multi-host TPU slice lies in one zone, not in {len(zones)}.")
    nodes = pool["initialNodeCount"]
    scaling = pool.get("autoscaling", {})
    if scaling.get("enabled"):
        most = scaling.get("maxNodeCount") or scaling.get("totalMaxNodeCount")
        if most != shape.hosts or nodes not in (0, shape.hosts):
            raise GUESS.invalid(
                f"Autoscaling of a {shape.topology} TPU slice goes from 0 to its {shape.hosts} nodes, not to {most}."
            )
    elif nodes != shape.hosts:
        raise GUESS.invalid(
            f"Number of nodes {nodes} does not match TPU topology {shape.topology}: "
            f"{shape.hosts} nodes of {shape.machine_type} are required."
        )
    if pool.get("upgradeSettings", {}).get("strategy") == "BLUE_GREEN":
        raise GUESS.invalid("Multi-host TPU slices support surge upgrades only.")
