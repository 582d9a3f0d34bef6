"""The queues over what a cluster has: a kustomization that `kubectl apply --kustomize` takes.

Nobody types a number of chips: the quota is what the pools have, less what teams were given of it as their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tpukit import render
from tpukit.quantities import amount
from tpukit.render import PoolKind
from tpukit.teams import quotas


def files(
    pools: Iterable[PoolKind],
    *,
    namespace: str,
    account: str,
    email: str,
    cpu_nodes: Mapping[str, Any],
    team_queues: Mapping[str, Any],
) -> dict[str, str]:
    """The files of the kustomization, by name: for every TPU pool, and the nodes of the CPU pool.

    Workloads of the namespace run as `account`, and act as the Google account `email`. The nodes, and the ClusterQueues
    that teams have in the cluster, are lists as kubectl prints them.
    """
    cpus, memory_gb = _spare(cpu_nodes)
    given = quotas.given(team_queues["items"])
    made = render.queue_files(Counter(pools), [namespace], cpus=cpus, memory_gb=memory_gb, given=given)
    made["account.yaml"] = render.account_file(namespace, account, email)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(made),
    }
    return {**made, "kustomization.yaml": yaml.safe_dump(kustomization, sort_keys=False)}


def _spare(cpu_nodes: Mapping[str, Any]) -> tuple[int, int]:
    """CPUs and GB of memory that jobs may have of the CPU pool. The other half is for JobSet, Kueue and GKE itself."""
    free = [node["status"]["allocatable"] for node in cpu_nodes["items"]]
    cpus, memory = (sum(amount(node[name]) for node in free) / 2 for name in ("cpu", "memory"))
    return int(cpus), int(memory / 10**9)
