"""Objects with only the fields that tpukit reads: of a pod's ten thousand bytes about one thousand.

They are plain dicts. With one of these as `type`, a list, a watch or a mirror leaves out fields that it does not name,
so add a field here before you read it. Read objects that are sent back without a type.
"""

from __future__ import annotations

from typing import Any

from tpukit.kube.job_documents import JobDoc, JobSetDoc, PodDoc
from tpukit.kube.queue_documents import EventDoc, NodeDoc, WorkloadDoc

SLIM: dict[str, Any] = {
    "Pod": PodDoc,
    "Job": JobDoc,
    "JobSet": JobSetDoc,
    "Workload": WorkloadDoc,
    "Node": NodeDoc,
    "Event": EventDoc,
}
"""Types by kind."""

__all__ = ["SLIM", "EventDoc", "JobDoc", "JobSetDoc", "NodeDoc", "PodDoc", "WorkloadDoc"]
