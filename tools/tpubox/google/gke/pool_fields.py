"""Pool fields with bounds that are independent of the machines: names, images, disks, Pods, scaling."""

from __future__ import annotations

import re

from tpubox.google.wire.label_rules import (
    check_node_labels,
    check_resource_labels,
    is_kubernetes_key,
    is_kubernetes_value,
)
from tpubox.google.wire.sources import GKE_DOCKER, GKE_IMAGE, GKE_POOL_NAME, GUESS
from tpubox.google.wire.state import Doc

NAME = re.compile(r"[a-z]([-a-z0-9]{0,38}[a-z0-9])?")
IMAGES = ("COS_CONTAINERD", "UBUNTU_CONTAINERD", "WINDOWS_LTSC_CONTAINERD", "WINDOWS_SAC_CONTAINERD")
"""Images of nodes.

https://cloud.google.com/kubernetes-engine/docs/concepts/node-images
"""
_DOCKER_IMAGES = ("COS", "UBUNTU", "WINDOWS_LTSC", "WINDOWS_SAC")
_DISK = re.compile(r"(pd|hyperdisk)-[a-z]+(-[a-z]+)*")
"""Form of disk types. New machines bring new types, so only the form is checked."""
_LEAST_DISK = 10  # GB
_PODS = (8, 256)
"""Bounds of the Pods per node.

https://cloud.google.com/kubernetes-engine/docs/how-to/flexible-pod-cidr
"""


def check_name(name: str) -> None:
    if not name:
        raise GKE_POOL_NAME.invalid("Node_pool.name must be specified.")
    if not NAME.fullmatch(name):
        raise GUESS.invalid(f"Invalid value for field 'node_pool.name': '{name}'. It must match {NAME.pattern}.")


def check(cluster: Doc, pool: Doc) -> None:
    config = pool["config"]
    _check_image(config.get("imageType", ""))
    _check_disk(config)
    check_node_labels(config.get("labels") or {})
    check_resource_labels(config.get("resourceLabels") or {}, "node_pool.config.resource_labels")
    for taint in config.get("taints") or ():
        _check_taint(taint)
    _check_metadata_mode(cluster, config)
    check_max_pods(pool.get("maxPodsConstraint") or {}, "node_pool.max_pods_constraint")
    _check_scaling(pool.get("autoscaling") or {})
    _check_surge(pool.get("upgradeSettings") or {})


def _check_image(image: str) -> None:
    """Refuse an unknown image, in either case."""
    if image.upper() in _DOCKER_IMAGES:
        raise GKE_DOCKER.invalid(
            "Creation of node pools using node images based on Docker container runtimes is not supported in GKE "
            "v1.24+ clusters as Dockershim has been removed in Kubernetes v1.24."
        )
    if image and image.upper() not in IMAGES:
        raise GKE_IMAGE.invalid(f"unexpected image_type: {image}.")


def _check_disk(config: Doc) -> None:
    size = int(config.get("diskSizeGb") or _LEAST_DISK)
    if size < _LEAST_DISK:
        raise GUESS.invalid(
            f"Invalid value for field 'node_pool.config.disk_size_gb': {size}. It must be at least {_LEAST_DISK}."
        )
    disk = config.get("diskType", "")
    if disk and not _DISK.fullmatch(disk):
        raise GUESS.invalid(f"Invalid value for field 'node_pool.config.disk_type': '{disk}'.")


def _check_taint(taint: Doc) -> None:
    key, value = taint.get("key", ""), taint.get("value", "")
    if not is_kubernetes_key(key) or not is_kubernetes_value(value):
        raise GUESS.invalid(f"Invalid field 'node_pool.config.taints': \"{key}={value}\" is not a valid taint.")
    if taint.get("effect", "EFFECT_UNSPECIFIED") == "EFFECT_UNSPECIFIED":
        raise GUESS.invalid(f"Invalid field 'node_pool.config.taints': taint \"{key}\" has no effect.")


def _check_metadata_mode(cluster: Doc, config: Doc) -> None:
    """Refuse GKE_METADATA without Workload Identity. The error text is a guess.

    https://cloud.google.com/kubernetes-engine/docs/reference/rest/v1/NodeConfig#Mode
    """
    mode = (config.get("workloadMetadataConfig") or {}).get("mode")
    if mode == "GKE_METADATA" and not (cluster.get("workloadIdentityConfig") or {}).get("workloadPool"):
        raise GUESS.invalid(
            "Workload metadata mode GKE_METADATA can only be enabled if Workload Identity is enabled for the cluster."
        )


def check_max_pods(constraint: Doc, where: str) -> None:
    """Refuse an invalid Pod limit of a pool, or a cluster's default for its pools."""
    least, most = _PODS
    pods = int(constraint.get("maxPodsPerNode") or least)
    if not least <= pods <= most:
        raise GUESS.invalid(
            f"Invalid value for field '{where}.max_pods_per_node': {pods}. It must be between {least} and {most}."
        )


def _check_scaling(scaling: Doc) -> None:
    if not scaling.get("enabled"):
        return
    bounds = {name: scaling.get(name) or 0 for name in ("minNodeCount", "maxNodeCount")}
    totals = {name: scaling.get(name) or 0 for name in ("totalMinNodeCount", "totalMaxNodeCount")}
    if any(bounds.values()) and any(totals.values()):
        raise GUESS.invalid("Autoscaling limits are set for each zone or in total, not both.")
    least, most = (totals if any(totals.values()) else bounds).values()
    if least < 0 or most < 1:
        raise GUESS.invalid("Autoscaling needs a max_node_count greater than zero and no negative min_node_count.")
    if least > most:
        raise GUESS.invalid(f"Autoscaling min_node_count {least} must not be greater than max_node_count {most}.")


def _check_surge(settings: Doc) -> None:
    for name in ("maxSurge", "maxUnavailable"):
        if (count := settings.get(name) or 0) < 0:
            raise GUESS.invalid(f"Invalid value for field 'node_pool.upgrade_settings': {name} {count} is negative.")
