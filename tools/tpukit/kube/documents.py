"""Objects with the fields that tpukit reads and no others: of a pod's ten thousand bytes about one thousand.

They are plain dicts. With one of these as `type` of a list, a watch or a mirror, fields that it does not name are left
out: whoever reads another one names it there first. Objects that are to be sent back are read without a type.
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
"""By kind."""

__all__ = ["SLIM", "EventDoc", "JobDoc", "JobSetDoc", "NodeDoc", "PodDoc", "WorkloadDoc"]
