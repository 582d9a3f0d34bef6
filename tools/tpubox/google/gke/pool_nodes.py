"""A node pool as Kubernetes sees it: the names of its nodes, and the labels and taints that GKE sets on them."""

from __future__ import annotations

from tpubox.google.gke import pod_ranges
from tpubox.google.gke.container import find_pool
from tpubox.google.gke.pool_checks import capacity_of
from tpubox.google.wire.cloud import Cloud
from tpubox.google.wire.settings import Pool
from tpubox.google.wire.state import Doc
from tpubox.pools.gke_labels import pool_labels
from tpukit.catalogue import Slice, slices
from tpukit.jobs.render.node_labels import BLOCKS, QUEUED, SUB_BLOCKS, whole_reservation

_EFFECTS = {"NO_SCHEDULE": "NoSchedule", "PREFER_NO_SCHEDULE": "PreferNoSchedule", "NO_EXECUTE": "NoExecute"}


def described(cloud: Cloud, full: str) -> Pool:
    doc = find_pool(cloud, full)
    _, project, _, location, _, cluster_name, _, name = full.split("/")
    cluster = cloud.state.get("cluster", full.partition("/nodePools/")[0])
    config = doc["config"]
    shape = _slice(doc)
    return Pool(
        project=project,
        location=location,
        cluster=cluster_name,
        name=name,
        machine_type=config["machineType"],
        slice=shape,
        nodes=doc["_nodes"],
        labels=_labels(doc, shape),
        taints=_taints(doc, shape),
        capacity=capacity_of(config),
        reservation=_reservation(config),
        max_pods=pod_ranges.max_pods(cluster or {}, doc),
        keeps_budgets=doc.get("nodeDrainConfig", {}).get("respectPdbDuringNodePoolDeletion", False),
    )


def _slice(doc: Doc) -> Slice | None:
    shape = (doc["config"]["machineType"], doc["_topology"])
    return next((each for each in slices() if (each.machine_type, each.topology) == shape), None)


def _reservation(config: Doc) -> str:
    return whole_reservation(str(config.get("reservationAffinity", {}).get("values", [""])[0]))


def _block_labels(config: Doc) -> dict[str, str]:
    """Return the cloud.google.com labels of nodes in a block of a reservation."""
    _, _, part = str(config.get("reservationAffinity", {}).get("values", [""])[0]).partition(BLOCKS)
    block, _, sub_block = part.partition(SUB_BLOCKS)
    said = {"reservation-blocks": block, "reservation-subblocks": sub_block}
    return {f"cloud.google.com/{name}": value for name, value in said.items() if value}


def _labels(doc: Doc, shape: Slice | None) -> dict[str, str]:
    config = doc["config"]
    capacity = capacity_of(config)
    reservation = _reservation(config) if capacity == "reservation" else ""
    queued = {QUEUED: "true"} if doc.get("queuedProvisioning", {}).get("enabled") else {}
    own = pool_labels(doc["name"], config["machineType"], shape, capacity, reservation)
    return {**config.get("labels", {}), **own, **queued, **_block_labels(config)}


def _taints(doc: Doc, shape: Slice | None) -> tuple[dict[str, str], ...]:
    """Return the pool's taints and GKE's own, for TPU nodes and for queued provisioning, but not for Spot.

    As users report it: https://github.com/GoogleCloudPlatform/cluster-toolkit, flex-start examples.
    """
    own = [
        {"key": each["key"], "value": each.get("value", ""), "effect": _EFFECTS.get(each["effect"], each["effect"])}
        for each in doc["config"].get("taints", ())
    ]
    if doc.get("queuedProvisioning", {}).get("enabled"):
        own.append({"key": QUEUED, "value": "true", "effect": "NoSchedule"})
    tpu = [{"key": "google.com/tpu", "value": "present", "effect": "NoSchedule"}] if shape else []
    return (*own, *tpu)
