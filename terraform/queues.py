"""From what Terraform made to the files of the queues over it: a kustomization that `kubectl apply -k` takes.

    terraform output -json > environment.json
    kubectl get nodes --selector=tpukit.dev/pool=cpu --output=json > cpu-nodes.json
    kubectl get clusterqueues.kueue.x-k8s.io --output=json > cluster-queues.json
    python terraform/queues.py --environment=environment.json --cpu-nodes=cpu-nodes.json \
      --cluster-queues=cluster-queues.json --into=queues
    kubectl apply --server-side --force-conflicts --kustomize=queues
    kubectl apply --server-side --force-conflicts --filename=queues/quotas.yaml

Nobody types a number of chips: the quota is what the pools have, less what teams have of their own. Needs tpukit to be
installed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tpukit import catalogue
from tpukit.cluster import outputs, queues
from tpukit.jobs.render import PoolKind
from tpukit.jobs.render.node_labels import whole_reservation


def files(
    environment: Mapping[str, Any], cpu_nodes: Mapping[str, Any], cluster_queues: Mapping[str, Any]
) -> dict[str, str]:
    """Return the files of the kustomization, by name."""
    return queues.files(
        [
            PoolKind(
                catalogue.find_shape(pool["generation"], pool["topology"], machine_type=pool["machine_type"]),
                f"reservation:{whole_reservation(pool['reservation_name'])}"
                if pool["capacity"] == "reservation"
                else pool["capacity"],
            )
            for pool in environment["tpu_pools"].values()
        ],
        namespace=environment["tpu_namespace"],
        account=environment["tpu_sa_name"],
        email=environment["tpu_sa_email"],
        cpu_nodes=cpu_nodes,
        cluster_queues=cluster_queues,
        queued=environment["flex_start_queued"],
    )


def main() -> int:
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--environment", type=Path, required=True, help="what `terraform output -json` printed")
    words.add_argument("--cpu-nodes", type=Path, required=True, help="the nodes of the CPU pool, as JSON")
    words.add_argument("--cluster-queues", type=Path, required=True, help="ClusterQueues that are there, as JSON")
    words.add_argument("--into", type=Path, required=True, help="folder for the files")
    said = words.parse_args()
    made = files(
        outputs.values(json.loads(said.environment.read_text())),
        json.loads(said.cpu_nodes.read_text()),
        json.loads(said.cluster_queues.read_text()),
    )
    said.into.mkdir(parents=True, exist_ok=True)
    for name, text in made.items():
        (said.into / name).write_text(text)
    return 0


if __name__ == "__main__":
    sys.exit(main())
