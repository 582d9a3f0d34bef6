"""What a place with the capability `unmanaged` can do beside the contract: with jobs that no store knows."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from tpukit.places.base import Capabilities, HostView, Line, Unmanaged


class UnmanagedJobs(Protocol):
    name: str
    capabilities: Capabilities

    def unmanaged(self, teams: Sequence[str]) -> Sequence[Unmanaged]:
        """Newest first, this store's own among them. Whoever may not see everything names the teams to ask for."""

    def unmanaged_hosts(self, job: Unmanaged) -> Sequence[HostView]: ...

    def unmanaged_logs(self, job: Unmanaged, *, follow: bool = False) -> Iterator[Line]: ...

    def adopt(self, job: Unmanaged, owner: str) -> None:
        """From now on it may be stopped and run again from here."""

    def stop_unmanaged(self, job: Unmanaged) -> None:
        """Conflict unless it was adopted."""

    def rerun_unmanaged(self, job: Unmanaged) -> None:
        """Send it once more as it was sent. Conflict unless it was adopted and has ended."""
