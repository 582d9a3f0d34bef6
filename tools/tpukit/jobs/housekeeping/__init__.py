"""Removes what piles up on this machine: staged code, old runs and their logs, locks, leftovers of killed processes.

Never what an active job needs. It may be killed at any moment, and goes on from there when it is next called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tpukit.jobs.housekeeping.decide import Item, Limits, Removal, What, decide
from tpukit.jobs.housekeeping.files import JobFacts, remove, scan

if TYPE_CHECKING:
    from tpukit.kernel.store import Store

__all__ = [
    "Item",
    "JobFacts",
    "Limits",
    "Removal",
    "Report",
    "What",
    "active_in",
    "decide",
    "known_jobs",
    "remove",
    "run",
    "scan",
]

_OF_JOBS = (What.RUN, What.CHECKPOINTS, What.LOCK)


@dataclass(frozen=True, slots=True)
class Report:
    removed: tuple[Removal, ...] = ()
    failed: tuple[tuple[Removal, str], ...] = ()  # with what kept it

    @property
    def freed(self) -> int:
        return sum(removal.item.bytes for removal in self.removed)


def run(
    data: Path,
    state: Path,
    known: Mapping[str, JobFacts],
    now: float,
    limits: Limits,
    *,
    checkpoints: bool = False,
    dry_run: bool = False,
    active: Callable[[str], bool] = lambda job_id: False,
) -> Report:
    """Remove what may go. `known` are all jobs of the store; `active` asks again about one, just before it is touched,
    because people resume jobs meanwhile."""
    removed: list[Removal] = []
    failed: list[tuple[Removal, str]] = []
    for removal in decide(scan(data, state, known, checkpoints=checkpoints), now, limits):
        item = removal.item
        if dry_run:
            removed.append(removal)
            continue
        if item.what in _OF_JOBS and item.known and active(item.name):
            continue
        try:
            if remove(item):
                removed.append(removal)
        except FileNotFoundError:  # another process was faster
            continue
        except OSError as error:
            failed.append((removal, error.strerror or str(error)))
    return Report(tuple(removed), tuple(failed))


def active_in(store: Store) -> Callable[[str], bool]:
    """Return a test for one job of a store: whether it is active, or its record cannot be read."""
    from tpukit.jobs.records import is_active

    return lambda job_id: bool(is_active(store, job_id))


def known_jobs(store: Store) -> dict[str, JobFacts]:
    """All jobs of a store. What cannot be read counts as active, and keeps all staged code."""
    from tpukit.jobs.records import ACTIVE, JOBS
    from tpukit.kernel.store import everything

    facts = {}
    for entry in everything(store, JOBS):
        job = entry.value
        digest = str((job.plan.get("snapshot") or {}).get("digest", ""))
        facts[entry.key] = JobFacts(job.state in ACTIVE, job.ended, digest)
    unreadable = JobFacts(active=True, readable=False)
    return facts | dict.fromkeys(store.keys(JOBS) - facts.keys(), unreadable)
