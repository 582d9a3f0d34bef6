"""Pools: the request that creates one for a need, the owner of an existing one, and whether it fits the pod. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tpukit.google.gke import NodePool
from tpukit.provisioner import pool_names
from tpukit.provisioner.needs import SPOT, Choice, Need

MAX_PODS = 15
"""Maximum pods on a TPU host: training and GKE's own on every node. Each more would waste pod addresses."""
_HYPERDISK_ONLY = ("v6e", "tpu7x")
"""Generations that boot from nothing else: https://cloud.google.com/kubernetes-engine/docs/concepts/hyperdisk."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The owner of a pool, from its labels."""

    namespace: str
    jobset: str
    uid: str
    job: str
    created: float
    since: float  # when the leader was first unschedulable


def owner(pool: NodePool) -> Owner | None:
    """Return the owner, or None if the pool is not ours."""
    labels = pool.labels
    keys = (pool_names.NAMESPACE, pool_names.JOBSET, pool_names.UID, pool_names.JOB)
    if labels.get(pool_names.MANAGED_BY) != pool_names.MANAGER or not all(labels.get(key) for key in keys):
        return None
    created = _number(labels.get(pool_names.CREATED, ""))
    since = _number(labels.get(pool_names.SINCE, "")) or created
    return Owner(
        labels[pool_names.NAMESPACE],
        labels[pool_names.JOBSET],
        labels[pool_names.UID],
        labels[pool_names.JOB],
        created,
        since,
    )


def identity(pool: NodePool) -> Mapping[str, str]:
    """Return our labels that distinguish this pool from an earlier or later one of its name."""
    keys = (pool_names.MANAGED_BY, pool_names.UID, pool_names.JOB, pool_names.CREATED)
    return {key: pool.labels[key] for key in keys if key in pool.labels}


def fits(pool: NodePool, need: Need) -> bool:
    """Return whether the pool has what the pod selects.

    A default that has changed since its creation is no reason to replace it.
    """
    tolerated = all(_tolerated(key, value, need) for key, value, _ in pool.taints)
    return (
        tolerated and need.labels.items() <= pool.labels.items() and any(_is(pool, one, need) for one in need.choices)
    )


def _is(pool: NodePool, choice: Choice, need: Need) -> bool:
    kind = "spot" if pool.spot else "flex-start" if pool.flex_start else "reservation" if pool.reservation else ""
    reservation = pool.reservation.rpartition("/")[2] == choice.capacity.reservation.rpartition("/")[2]
    bought = ((kind or "on-demand") == choice.capacity.kind and reservation) or not need.selects_capacity
    placed = pool.zones == (choice.zone,) or not need.selects_zone
    several = choice.slice.hosts > 1
    topology = pool.topology == choice.slice.topology if several and choice.slice.placement == "compact" else True
    machine = pool.machine_type == choice.slice.machine_type and pool.nodes == choice.nodes
    return bought and placed and topology and machine


def _tolerated(key: str, value: str, need: Need) -> bool:
    if key == "google.com/tpu":  # GKE adds the toleration to every pod that requests chips
        return True
    return any(known in ("", key) and wanted in ("", value) for known, wanted in need.tolerated)


def body(name: str, need: Need, choice: Choice, number: int, now: float) -> dict[str, Any]:
    """Return the NodePool to request, in the REST API's spelling."""
    options, shape = need.options, choice.slice
    flexible = choice.capacity.kind == "flex-start"
    scaling = {"enabled": True, "minNodeCount": 0, "maxNodeCount": choice.nodes, "locationPolicy": "ANY"}
    networks = [{"network": network, "subnetwork": subnet} for network, subnet in options.additional_networks]
    return {
        "name": name,
        "initialNodeCount": 0 if flexible else choice.nodes,
        "locations": [choice.zone],
        "config": _config(name, need, choice, number, now),
        "management": {
            # GKE refuses to repair capacity that is given for a limited time.
            "autoRepair": options.auto_repair and not flexible,
            "autoUpgrade": options.auto_upgrade,
        },
        "maxPodsConstraint": {"maxPodsPerNode": str(MAX_PODS)},
        # There is no spare slice to surge into.
        "upgradeSettings": {"maxSurge": 0, "maxUnavailable": 1},
        **({"placementPolicy": _placement(choice, options.workload_policy)} if shape.hosts > 1 else {}),
        **({"autoscaling": scaling} if flexible else {}),
        **({"networkConfig": {"additionalNodeNetworkConfigs": networks}} if networks else {}),
    }


def _config(name: str, need: Need, choice: Choice, number: int, now: float) -> dict[str, Any]:
    options = need.options
    preload = [{"diskImage": options.secondary_boot_disk, "mode": "CONTAINER_IMAGE_CACHE"}]
    return {
        "machineType": choice.slice.machine_type,
        "diskType": "hyperdisk-balanced" if choice.slice.generation in _HYPERDISK_ONLY else "pd-balanced",
        "diskSizeGb": options.disk_size_gb,
        "imageType": "COS_CONTAINERD",
        "oauthScopes": ["https://www.googleapis.com/auth/cloud-platform"],
        "labels": {**need.labels, **_labels(need, number, now)},
        "gvnic": {"enabled": True},
        # Preloaded images are read through image streaming:
        # https://cloud.google.com/kubernetes-engine/docs/how-to/data-container-image-preloading
        "gcfsConfig": {"enabled": True},
        "shieldedInstanceConfig": {"enableSecureBoot": True, "enableIntegrityMonitoring": True},
        "workloadMetadataConfig": {"mode": "GKE_METADATA"},
        **_capacity(choice),
        **_spot_taint(need, choice),
        **({"serviceAccount": options.node_service_account} if options.node_service_account else {}),
        **({"secondaryBootDisks": preload} if options.secondary_boot_disk else {}),
        **({"bootDiskKmsKey": options.disk_kms_key} if options.disk_kms_key else {}),
        **({"tags": list(options.network_tags)} if options.network_tags else {}),
    }


def _labels(need: Need, number: int, now: float) -> dict[str, str]:
    return {
        pool_names.MANAGED_BY: pool_names.MANAGER,
        pool_names.NAMESPACE: need.namespace,
        pool_names.JOBSET: need.jobset,
        pool_names.UID: need.uid,
        pool_names.JOB: need.job,
        pool_names.CREATED: str(int(now)),
        pool_names.SINCE: str(int(need.since)),
        pool_names.CHOICE: str(number),
    }


def _capacity(choice: Choice) -> dict[str, Any]:
    kind = choice.capacity.kind
    if kind == "spot":
        return {"spot": True}
    if kind == "flex-start":
        return {"flexStart": True, "reservationAffinity": {"consumeReservationType": "NO_RESERVATION"}}
    if kind == "reservation":
        specific = {"consumeReservationType": "SPECIFIC_RESERVATION", "key": "compute.googleapis.com/reservation-name"}
        return {"reservationAffinity": {**specific, "values": [choice.capacity.reservation]}}
    return {}


def _spot_taint(need: Need, choice: Choice) -> dict[str, Any]:
    """Return the taint that keeps off pods that did not request spot, if the need's own pod tolerates it."""
    if choice.capacity.kind != "spot" or not _tolerated(SPOT, "true", need):
        return {}
    return {"taints": [{"key": SPOT, "value": "true", "effect": "NO_SCHEDULE"}]}


def _placement(choice: Choice, policy: str) -> Mapping[str, str]:
    if choice.slice.placement == "policy":
        return {"policyName": policy.replace("TOPOLOGY", choice.slice.topology)}
    return {"type": "COMPACT", "tpuTopology": choice.slice.topology}


def _number(text: str) -> float:
    return float(text) if text.isascii() and text.isdigit() else 0.0
