"""The queues over a cluster's resources: a kustomization for `kubectl apply --kustomize`, and a file of quotas.

The quota is what the pools have, less what teams were given as their own. If pools that teams had been given were
deleted, all quotas are recomputed: the file of quotas then has the teams' queues too, write by write, so that at no
time is more handed out than there was or is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from tpukit.core.quantities import amount
from tpukit.jobs import render
from tpukit.jobs.render import PoolKind
from tpukit.teams import settling

QUOTAS = "quotas.yaml"


def files(
    pools: Iterable[PoolKind],
    *,
    namespace: str,
    account: str,
    email: str,
    cpu_nodes: Mapping[str, Any],
    cluster_queues: Mapping[str, Any],
    queued: bool = False,
) -> dict[str, str]:
    """Return the files of the kustomization, by name, for every TPU pool and the nodes of the CPU pool.

    Workloads of the namespace run as `account`, and act as the Google account `email`. The nodes, and the cluster's
    ClusterQueues, are lists as kubectl prints them. `queued`: flex-start slices use queued provisioning.
    `QUOTAS` is applied by itself, after the rest.
    """
    cpus, memory_gb = _spare(cpu_nodes)
    made = render.queue_files(Counter(pools), [namespace], cpus=cpus, memory_gb=memory_gb, queued=queued)
    common = yaml.safe_load(made.pop("cluster-queue.yaml"))
    writes = settling.renewed(common, cluster_queues["items"])
    made["account.yaml"] = render.account_file(namespace, account, email)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "resources": sorted(made),
    }
    return {
        **made,
        "kustomization.yaml": yaml.safe_dump(kustomization, sort_keys=False),
        QUOTAS: yaml.safe_dump_all(writes, sort_keys=False),
    }


def _spare(cpu_nodes: Mapping[str, Any]) -> tuple[int, int]:
    """Return the CPUs and GB of memory for jobs in the CPU pool. The other half is for JobSet, Kueue and GKE."""
    free = [node["status"]["allocatable"] for node in cpu_nodes["items"]]
    cpus, memory = (sum(amount(node[name]) for node in free) / 2 for name in ("cpu", "memory"))
    return int(cpus), int(memory / 10**9)
