"""Cache of parsed plans: a round needs each several times, parsing costs as much as deciding, and few change."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

from tpukit.jobs.plan import Plan
from tpukit.jobs.records import Job
from tpukit.places.base import Handle


class Plans:
    """Parsed plans by job id, for one process. Thread-safe."""

    def __init__(self) -> None:
        self._read: dict[str, tuple[Mapping[str, Any], Plan]] = {}

    def of(self, job: Job) -> Plan:
        known = self._read.get(job.id)
        if known is None or (known[0] is not job.plan and known[0] != job.plan):
            known = self._read[job.id] = job.plan, Plan.from_json(job.plan)
        return known[1]

    def handle(self, job: Job) -> Handle:
        """Return the handle of the job's last attempt."""
        return Handle.with_plan(self.of(job), job)

    def keep_only(self, job_ids: Container[str]) -> None:
        self._read = {job_id: read for job_id, read in list(self._read.items()) if job_id in job_ids}
