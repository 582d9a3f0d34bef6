"""From what Terraform made to the files of the queues over it: a kustomization that `kubectl apply -k` takes.

    terraform output -json > environment.json
    kubectl get nodes --selector=tpukit.dev/pool=cpu --output=json > cpu-nodes.json
    python terraform/queues.py --environment=environment.json --cpu-nodes=cpu-nodes.json --into=queues

Nobody types a number of chips: the quota is what the pools have. Needs tpukit to be installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tpukit import catalogue, render

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


def files(environment: Mapping[str, Any], cpu_nodes: Mapping[str, Any]) -> dict[str, str]:
    """The files of the kustomization, by name."""
    quotas = Counter(
        catalogue.find_shape(pool["generation"], pool["topology"], machine_type=pool["machine_type"])
        for pool in environment["tpu_pools"].values()
    )
    cpus, memory_gb = _spare(cpu_nodes)
    made = render.queue_files(quotas, [environment["tpu_namespace"]], cpus=cpus, memory_gb=memory_gb)
    made["account.yaml"] = yaml.safe_dump(_account(environment), sort_keys=False)
    made["kustomization.yaml"] = yaml.safe_dump(
        {"apiVersion": "kustomize.config.k8s.io/v1beta1", "kind": "Kustomization", "resources": sorted(made)},
        sort_keys=False,
    )
    return made


def _account(environment: Mapping[str, Any]) -> dict[str, Any]:
    """The Kubernetes account that workloads run as, and the Google account that it acts as."""
    return {
        "apiVersion": "v1",
        "kind": "ServiceAccount",
        "metadata": {
            "name": environment["tpu_sa_name"],
            "namespace": environment["tpu_namespace"],
            "annotations": {"iam.gke.io/gcp-service-account": environment["tpu_sa_email"]},
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


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--environment", type=Path, required=True, help="what `terraform output -json` printed")
    words.add_argument("--cpu-nodes", type=Path, required=True, help="the nodes of the CPU pool, as JSON")
    words.add_argument("--into", type=Path, required=True, help="folder for the files")
    said = words.parse_args()
    outputs = json.loads(said.environment.read_text())
    made = files({name: output["value"] for name, output in outputs.items()}, json.loads(said.cpu_nodes.read_text()))
    said.into.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (said.into / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
