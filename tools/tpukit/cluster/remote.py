"""Check for running jobs where Terraform runs elsewhere, by comparing the cluster with the cluster file."""

from __future__ import annotations

from tpukit.cluster import busy_pools, gcloud
from tpukit.cluster.busy_pools import Doomed
from tpukit.cluster.spec import ClusterSpec


def lines(spec: ClusterSpec, context: str) -> list[str]:
    questions = map(str, busy_pools.questions(context))
    return [str(gcloud.describe_cluster(spec)), "# if the cluster is there", *questions]


def check(spec: ClusterSpec, context: str, verb: str) -> Doomed:
    """Return what would or might be deleted. Raise Conflict while jobs run on it."""
    if not gcloud.exists(gcloud.describe_cluster(spec), "looking for the cluster"):
        return Doomed()
    nodes, pods = busy_pools.nodes_and_pods_before(f"cluster {spec.cluster_name} would be changed", context)
    going = Doomed(everything=True) if verb == "destroy" else busy_pools.unlike(spec.shapes, nodes)
    busy_pools.refuse(busy_pools.busy(going, nodes, pods))
    return going
