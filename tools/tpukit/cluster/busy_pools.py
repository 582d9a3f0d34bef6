"""Refuse to delete a pool that runs a job, unless eviction is allowed.

The rules find the pools that a plan deletes and the jobs on them. They are pure functions over the output of Terraform
and kubectl. If the cluster is unreachable, the deletion is refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tpukit.catalogue import Slice
from tpukit.cluster import programs
from tpukit.cluster.programs import Command
from tpukit.core.errors import Conflict

POOL = "google_container_node_pool"
CLUSTER = "google_container_cluster"

POOL_LABEL = "cloud.google.com/gke-nodepool"
TOPOLOGY_LABEL = "cloud.google.com/gke-tpu-topology"
_MACHINE = "node.kubernetes.io/instance-type"
_JOB_LABELS = ("jobset.sigs.k8s.io/jobset-name", "batch.kubernetes.io/job-name", "job-name")
_CHIPS = "google.com/tpu"
_OVER = ("Succeeded", "Failed")
_TRIES = 3
"""Attempts for each query: a busy API server sometimes responds late."""


@dataclass(frozen=True, slots=True)
class Doomed:
    """Names of pools that would be deleted; all pools if the cluster itself would be."""

    pools: frozenset[str] = frozenset()
    everything: bool = False

    def __bool__(self) -> bool:
        return self.everything or bool(self.pools)

    def __contains__(self, pool: object) -> bool:
        return self.everything or pool in self.pools


def doomed(plan: Mapping[str, Any]) -> Doomed:
    """Return what a plan deletes or replaces, from the output of `terraform show -json`."""
    gone = [
        change
        for change in plan.get("resource_changes", [])
        if change.get("type") in (POOL, CLUSTER) and "delete" in change.get("change", {}).get("actions", [])
    ]
    pools = frozenset(str(change["change"]["before"]["name"]) for change in gone if change["type"] == POOL)
    return Doomed(pools, any(change["type"] == CLUSTER for change in gone))


def unlike(shapes: Mapping[str, Slice], nodes: Mapping[str, Any]) -> Doomed:
    """Return TPU pools in the cluster that are not wanted or have another shape. Used where there is no plan."""
    there = {
        labels[POOL_LABEL]: (labels.get(_MACHINE), labels.get(TOPOLOGY_LABEL))
        for labels in (node["metadata"].get("labels", {}) for node in nodes["items"])
        if POOL_LABEL in labels and TOPOLOGY_LABEL in labels
    }
    wanted = {name: (shape.machine_type, shape.topology) for name, shape in shapes.items()}
    return Doomed(frozenset(name for name, shape in there.items() if wanted.get(name) != shape))


def busy(going: Doomed, nodes: Mapping[str, Any], pods: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the jobs that run on pools to be deleted, as NAMESPACE/NAME, by pool."""
    pool_of = {
        node["metadata"]["name"]: pool
        for node in nodes["items"]
        if (pool := node["metadata"].get("labels", {}).get(POOL_LABEL, "")) in going
    }
    found: dict[str, set[str]] = {}
    for pod in pods["items"]:
        node, job = pod.get("spec", {}).get("nodeName"), _job(pod)
        if node in pool_of and job and pod.get("status", {}).get("phase") not in _OVER:
            found.setdefault(pool_of[node], set()).add(job)
    return {pool: sorted(jobs) for pool, jobs in sorted(found.items())}


def _job(pod: Mapping[str, Any]) -> str:
    """Return the job of a pod; the pod itself if it holds chips without a job; "" for the cluster's own pods."""
    about = pod["metadata"]
    labels = about.get("labels", {})
    name = next((labels[label] for label in _JOB_LABELS if label in labels), "")
    limits = (box.get("resources", {}).get("limits", {}) for box in pod.get("spec", {}).get("containers", []))
    name = name or (about["name"] if any(_CHIPS in limit for limit in limits) else "")
    return f"{about['namespace']}/{name}" if name else ""


def questions(context: str) -> tuple[Command, Command]:
    """Return the command lines that read nodes and pods."""
    ask = ("kubectl", f"--context={context}", "--request-timeout=20s", "get")
    return (
        Command((*ask, "nodes", "--output=json")),
        Command((*ask, "pods", "--all-namespaces", "--output=json")),
    )


def nodes_and_pods(context: str) -> tuple[dict[str, Any], dict[str, Any]]:
    programs.need("kubectl", "install it with `gcloud components install kubectl gke-gcloud-auth-plugin`")
    answers = []
    for question in questions(context):
        for _ in range(_TRIES):
            done = programs.run(question)
            if not done.code:
                break
        else:  # kubectl prints an empty list when it was refused or timed out
            raise Conflict(
                f"the jobs of the cluster cannot be listed: {done.errors.strip() or 'no answer'}",
                hint="run `tpu cluster credentials` to get access",
            )
        answers.append(json.loads(done.output))
    return answers[0], answers[1]


def nodes_and_pods_before(what: str, context: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return nodes and pods, or refuse the deletion if the cluster does not respond."""
    try:
        return nodes_and_pods(context)
    except Conflict as error:
        raise Conflict(
            f"{what}, and {error.message}", hint=f"{error.hint}; --evict deletes the pools without this check"
        ) from error


def check(going: Doomed, context: str) -> None:
    """Raise Conflict while jobs run on what would be deleted."""
    if not going:
        return
    what = "the cluster" if going.everything else _words(sorted(going.pools))
    nodes, pods = nodes_and_pods_before(f"{what} would be deleted", context)
    refuse(busy(going, nodes, pods))


def refuse(found: Mapping[str, Sequence[str]]) -> None:
    if found:
        lines = "\n  ".join(f"{pool} runs {', '.join(jobs)}" for pool, jobs in found.items())
        raise Conflict(
            f"pools that would be deleted run jobs:\n  {lines}",
            hint="wait for the jobs, or stop them; --evict deletes the pools anyway",
        )


def _words(names: Sequence[str]) -> str:
    return names[0] if len(names) == 1 else f"{len(names)} pools ({', '.join(names[:5])}{', …' if names[5:] else ''})"
