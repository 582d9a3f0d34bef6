"""The queues over what a cluster has: a kustomization that `kubectl apply --kustomize` takes.

Nobody types a number of chips: the quota is what the pools have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tpukit import render
from tpukit.catalogue import Slice

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


def files(
    slices: Iterable[Slice], *, namespace: str, account: str, email: str, cpu_nodes: Mapping[str, Any]
) -> dict[str, str]:
    """The files of the kustomization, by name: for the slice of every pool, and the nodes of the CPU pool.

    Workloads of the namespace run as `account`, and act as the Google account `email`.
    """
    cpus, memory_gb = _spare(cpu_nodes)
    made = render.queue_files(Counter(slices), [namespace], cpus=cpus, memory_gb=memory_gb)
    made["account.yaml"] = yaml.safe_dump(_account(namespace, account, email), sort_keys=False)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(made),
    }
    return {**made, "kustomization.yaml": yaml.safe_dump(kustomization, sort_keys=False)}


def _account(namespace: str, account: str, email: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": account,
            "namespace": namespace,
            "annotations": {"iam.gke.io/gcp-service-account": email},
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
