"""Documents for Kubernetes: what a plan becomes on GKE, and the queues that its jobs wait in.

The text is exactly what would be sent, and nothing is ever read back out of it. The API server's dry run has the last
word on whether a cluster takes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from tpukit.catalogue import Slice
from tpukit.plan import Plan
from tpukit.render import jobset, kueue, template

__all__ = ["documents", "queue_files", "queues", "text"]


def text(plan: Plan) -> str:
    """The YAML of a plan."""
    jobset.check(plan)
    context = {"job": jobset.job(plan), "host": jobset.host(plan), "uploader": jobset.uploader(plan)}
    return template.fill("jobset", "jobset", **context)


def documents(plan: Plan) -> list[dict[str, Any]]:
    """The same, parsed."""
    return template.parse(text(plan))


def queue_files(quotas: Mapping[Slice, int], teams: Sequence[str], *, cpus: int, memory_gb: int) -> dict[str, str]:
    """The files of a kustomization, by name: queues over so many slices of each shape, so many CPUs and so much memory
    of the CPU pool, shared by these teams."""
    context = kueue.queues(quotas, teams, cpus=cpus, memory_gb=memory_gb)
    return {f"{name}.yaml": template.fill("kueue", name, queues=context) for name in kueue.FILES}


def queues(quotas: Mapping[Slice, int], teams: Sequence[str], *, cpus: int, memory_gb: int) -> list[dict[str, Any]]:
    """The documents in them, in the order in which a cluster takes them."""
    files = queue_files(quotas, teams, cpus=cpus, memory_gb=memory_gb)
    return [document for text in files.values() for document in template.parse(text)]
