"""Remove what accumulates on this machine: staged code, old runs and logs, locks, leftovers of killed processes.

Nothing that an active job needs is removed. The process may be killed at any moment; the next call continues.
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
    failed: tuple[tuple[Removal, str], ...] = ()  # with the error

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
    """Remove what may go.

    `known` are all jobs of the store. `active` checks a job again before its files are removed, because people resume
    jobs meanwhile.
    """
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
        except FileNotFoundError:  # another process removed it first
            continue
        except OSError as error:
            failed.append((removal, error.strerror or str(error)))
    return Report(tuple(removed), tuple(failed))


def active_in(store: Store) -> Callable[[str], bool]:
    """Return a test whether a job of the store is active. An unreadable record counts as active."""
    from tpukit.jobs.records import is_active

    return lambda job_id: bool(is_active(store, job_id))


def known_jobs(store: Store) -> dict[str, JobFacts]:
    """Return all jobs of a store. An unreadable record counts as active, and keeps all staged code."""
    from tpukit.jobs.records import ACTIVE, JOBS
    from tpukit.kernel.store import everything

    facts = {}
    for entry in everything(store, JOBS):
        job = entry.value
        digest = str((job.plan.get("snapshot") or {}).get("digest", ""))
        facts[entry.key] = JobFacts(job.state in ACTIVE, job.ended, digest)
    unreadable = JobFacts(active=True, readable=False)
    return facts | dict.fromkeys(store.keys(JOBS) - facts.keys(), unreadable)
