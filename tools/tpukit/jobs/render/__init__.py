"""Render Kubernetes documents: a plan as a JobSet on GKE, and the queues that its jobs wait in.

The text is exactly what is sent, and nothing is read back out of it. The API server's dry run decides whether a cluster
accepts it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tpukit.catalogue import Slice
from tpukit.jobs.render import machine_share, node_labels, template
from tpukit.jobs.render.pool_kinds import PoolKind

if TYPE_CHECKING:
    from tpukit.jobs.plan import Plan
    from tpukit.jobs.render import kueue
    from tpukit.jobs.render.jobset import Attempt

__all__ = [
    "PoolKind",
    "account_file",
    "cluster_queue",
    "documents",
    "machine_share",
    "node_labels",
    "queue_files",
    "queues",
    "team",
    "text",
]


def text(plan: Plan, attempt: Attempt | None = None, code_parts: int | None = None) -> str:
    """Return the YAML of an attempt's JobSet (default: the first's).

    Its code has `code_parts` parts (default: one, if it has code).
    """
    from tpukit.jobs.render import jobset

    attempt = attempt or jobset.FIRST
    jobset.check(plan)
    parts = int(plan.spec.code is not None) if code_parts is None else code_parts
    context = {
        "job": jobset.job(plan, attempt),
        "host": jobset.host(plan, attempt, parts),
        "uploader": jobset.uploader(plan, attempt),
    }
    return template.fill("jobset", "jobset", **context)


def documents(plan: Plan, attempt: Attempt | None = None, code_parts: int | None = None) -> list[dict[str, Any]]:
    """Return `text`, parsed."""
    return template.parse(text(plan, attempt, code_parts))


def queue_files(
    quotas: Mapping[PoolKind, int] | Mapping[Slice, int],
    teams: Sequence[str],
    *,
    cpus: int,
    memory_gb: int,
    queued: bool = False,
) -> dict[str, str]:
    """Return the files of a kustomization, by name: the queues that the teams share.

    They cover `quotas` slices of each kind, and the CPUs and memory of the CPU pool. A shape alone is on-demand.
    `queued`: flex-start slices come by queued provisioning.
    """
    from tpukit.jobs.render import kueue

    kinds = {PoolKind(kind) if isinstance(kind, Slice) else kind: count for kind, count in quotas.items()}
    context = kueue.queues(kinds, teams, cpus=cpus, memory_gb=memory_gb, queued=queued)
    return {f"{name}.yaml": template.fill("kueue", name, queues=context, queue=context.common) for name in kueue.FILES}


def account_file(namespace: str, account: str, email: str = "") -> str:
    """Return the service account for the pods of a namespace, bound to a Google account."""
    from tpukit.jobs.render import kueue

    team = kueue.Team(namespace, kueue.COMMON, made_with_cluster=True, account=account, email=email)
    return template.fill("kueue", "account", team=team)


def queues(
    quotas: Mapping[PoolKind, int] | Mapping[Slice, int],
    teams: Sequence[str],
    *,
    cpus: int,
    memory_gb: int,
    queued: bool = False,
) -> list[dict[str, Any]]:
    """Return the documents of `queue_files`, in the order that a cluster needs."""
    files = queue_files(quotas, teams, cpus=cpus, memory_gb=memory_gb, queued=queued)
    return [document for text in files.values() for document in template.parse(text)]


def cluster_queue(queue: kueue.ClusterQueue) -> dict[str, Any]:
    """Return one ClusterQueue: the common one, or a team's own."""
    return template.parse(template.fill("kueue", "cluster-queue", queue=queue))[0]


def team(team: kueue.Team) -> list[dict[str, Any]]:
    """Return a team's documents except its ClusterQueue, after those that all teams share."""
    names = ("members", *(("pods",) if team.access != "restricted" else ()), "team")
    texts = (template.fill("kueue", name, team=team) for name in names)
    return [document for text in texts for document in template.parse(text)]
