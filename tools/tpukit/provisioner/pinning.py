"""Check whether the nodes of a future pool could take a pod, by its node selector and affinity. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

_GOOGLE, _BETA = "cloud.google.com", "beta.kubernetes.io"
SET_BY_GKE = frozenset(
    [f"{_GOOGLE}/{name}" for name in (
        "gke-accelerator-count", "gke-boot-disk", "gke-container-runtime", "gke-cpu-scaling-level",
        "gke-logging-variant", "gke-max-pods-per-node", "gke-memory-gb-scaling-level", "gke-netd-ready",
        "gke-os-distribution", "gke-provisioning", "gke-stack-type", "machine-family", "private-node",
        "reservation-name", "reservation-project",
    )]
    + [f"{_BETA}/{name}" for name in ("arch", "instance-type", "os")]
    + [f"failure-domain.{_BETA}/{name}" for name in ("region", "zone")]
    + ["iam.gke.io/gke-metadata-server-enabled", "kubernetes.io/arch", "kubernetes.io/os", "topology.gke.io/zone"]
)  # fmt: skip
"""Labels that GKE sets, to values that are known only when the node exists: a pod may select by them."""


def unmet(spec: Mapping[str, Any], labels: Mapping[str, str | None]) -> str:
    """Return the first requirement of a pod that no node with these labels meets, or "" if they meet all.

    `labels`: those that the nodes will have; None: those that they will certainly not have. The latter holds for any
    other label outside SET_BY_GKE too: the name of another pool or of a host, or a label that nothing sets.
    """
    for key, value in (spec.get("nodeSelector") or {}).items():
        if not _met(key, "In", [value], labels):
            return f"nodeSelector {key}: {value}"
    affinity = ((spec.get("affinity") or {}).get("nodeAffinity") or {}).get(
        "requiredDuringSchedulingIgnoredDuringExecution"
    )
    failing = [_failing(term, labels) for term in (affinity or {}).get("nodeSelectorTerms") or ()]
    return "" if not failing or "" in failing else f"nodeAffinity {failing[0]}"


def _failing(term: Mapping[str, Any], labels: Mapping[str, str | None]) -> str:
    for one in term.get("matchExpressions") or ():
        key, operator, values = one["key"], one.get("operator", "In"), one.get("values") or []
        if not _met(key, operator, values, labels):
            return f"{key} {operator} {', '.join(values)}".rstrip()
    for one in term.get("matchFields") or ():  # only the name of a node can be matched
        if one.get("operator") == "In":
            return f"{one.get('key')} In {', '.join(one.get('values') or [])}"
    return ""


def _met(key: str, operator: str, values: Sequence[str], labels: Mapping[str, str | None]) -> bool:
    if key not in labels and key in SET_BY_GKE:
        return True
    value = labels.get(key)
    if operator == "In":
        return value in values
    if operator == "NotIn":
        return value not in values
    if operator == "DoesNotExist":
        return value is None
    return value is not None
