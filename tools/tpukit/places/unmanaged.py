"""The additional interface of a place with the capability `unmanaged`, for jobs that are in no store."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tpukit.places.base import HostView, Line, Unmanaged
from tpukit.places.capabilities import Capabilities


class UnmanagedJobs(Protocol):
    name: str
    capabilities: Capabilities

    def unmanaged(self, teams: Sequence[str]) -> Sequence[Unmanaged]:
        """Return all jobs, newest first, including this store's. `teams`: those to list without permission for all."""

    def unmanaged_hosts(self, job: Unmanaged) -> Sequence[HostView]: ...

    def unmanaged_logs(self, job: Unmanaged, *, follow: bool = False) -> Iterator[Line]: ...

    def adopt(self, job: Unmanaged, owner: str) -> None:
        """Adopt a job, so that it may be stopped and rerun from here."""

    def stop_unmanaged(self, job: Unmanaged) -> None:
        """Stop an adopted job.

        Raises:
            Conflict: The job is not adopted.
        """

    def rerun_unmanaged(self, job: Unmanaged) -> None:
        """Send an adopted, ended job once more, unchanged.

        Raises:
            Conflict: The job is not adopted, or has not ended.
        """
