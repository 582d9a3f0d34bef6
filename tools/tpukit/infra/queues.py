"""The queues over what a cluster has: a kustomization that `kubectl apply --kustomize` takes.

Nobody types a number of chips: the quota is what the pools have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import yaml

from tpukit import render
from tpukit.infra import gcloud
from tpukit.infra.spec import ClusterSpec

_UNITS = {
    "Ki": 2**10,
    "Mi": 2**20,
    "Gi": 2**30,
    "Ti": 2**40,
    "k": 10**3,
    "M": 10**6,
    "G": 10**9,
    "T": 10**12,
    "m": 1e-3,
}


def files(spec: ClusterSpec, cpu_nodes: Mapping[str, Any]) -> dict[str, str]:
    """The files of the kustomization, by name."""
    cpus, memory_gb = _spare(cpu_nodes)
    made = render.queue_files(Counter(spec.shapes.values()), [spec.tpu_namespace], cpus=cpus, memory_gb=memory_gb)
    made["account.yaml"] = yaml.safe_dump(_account(spec), sort_keys=False)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(made),
    }
    return {**made, "kustomization.yaml": yaml.safe_dump(kustomization, sort_keys=False)}


def _account(spec: ClusterSpec) -> dict[str, Any]:
    """The Kubernetes account that workloads run as, and the Google account that it acts as."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": spec.tpu_sa_name,
            "namespace": spec.tpu_namespace,
            "annotations": {"iam.gke.io/gcp-service-account": gcloud.email(spec.tpu_sa_name, spec.project_id)},
        },
    }


def _spare(cpu_nodes: Mapping[str, Any]) -> tuple[int, int]:
    """CPUs and GB of memory that jobs may have of the CPU pool. The other half is for JobSet, Kueue and GKE itself."""
    free = [node["status"]["allocatable"] for node in cpu_nodes["items"]]
    cpus, memory = (sum(_number(node[name]) for node in free) / 2 for name in ("cpu", "memory"))
    return int(cpus), int(memory / 10**9)


def _number(quantity: str) -> float:
    unit = next((unit for unit in _UNITS if quantity.endswith(unit)), "")
    return float(quantity.removesuffix(unit)) * _UNITS.get(unit, 1)
