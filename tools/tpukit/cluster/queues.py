"""The queues over what a cluster has: a kustomization that `kubectl apply --kustomize` takes, and the quotas beside it.

Nobody types a number of chips: the quota is what the pools have, less what teams were given of it as their own. Where
pools went away that teams had been given, all of it is settled anew: the file of quotas has the teams' queues too,
write by write, so that no moment hands out more than there was or is.
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
    """The files of the kustomization, by name: for every TPU pool, and the nodes of the CPU pool.

    Workloads of the namespace run as `account`, and act as the Google account `email`. The nodes, and the ClusterQueues
    that are in the cluster, are lists as kubectl prints them. `queued`: flex-start slices come by queued provisioning.
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
    """CPUs and GB of memory that jobs may have of the CPU pool. The other half is for JobSet, Kueue and GKE itself."""
    free = [node["status"]["allocatable"] for node in cpu_nodes["items"]]
    cpus, memory = (sum(amount(node[name]) for node in free) / 2 for name in ("cpu", "memory"))
    return int(cpus), int(memory / 10**9)
