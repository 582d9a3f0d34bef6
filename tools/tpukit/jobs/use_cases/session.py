"""The store, the places and the identity with which a process acts on jobs."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from tpukit.core import paths
from tpukit.core.errors import NotFound, TpukitError
from tpukit.jobs.records import JOBS, Job

if TYPE_CHECKING:
    from tpukit.core.clock import Clock
    from tpukit.jobs.controller.driver import Driver
    from tpukit.kernel import Hooks
    from tpukit.kernel.store import Holder, Lease, Store
    from tpukit.places.base import Observation, Place


@dataclass(frozen=True)
class Session:
    open_store: Callable[[], Store]  # called on first use: a wrong job file creates no store and no folder
    open_places: Callable[[], Mapping[str, Place]]
    clock: Clock
    holder: Holder
    owner: str  # user that requests are recorded for
    say: Callable[[str, str], None]  # takes a job id, or the name of a place, and a remark about it
    warn: Callable[[str], None]

    @cached_property
    def store(self) -> Store:
        return self.open_store()

    @cached_property
    def places(self) -> Mapping[str, Place]:
        return self.open_places()

    def driver(
        self,
        *,
        parallel: int = 0,
        workers: int = 0,
        report: Callable[[str, str], None] = lambda job_id, text: None,
        complain: Callable[[str, str], None] | None = None,
        observed: Callable[[str, Observation], None] = lambda job_id, seen: None,
        hooks: Hooks | None = None,
    ) -> Driver:
        """Return a driver of jobs. It renews its leases in the background: an upload may take longer than a lease."""
        from tpukit.jobs.controller.driver import Driver
        from tpukit.jobs.spent_budgets import Holding

        driver = Driver(
            self.store,
            self.places,
            self.clock,
            self.holder,
            parallel=parallel,
            workers=workers,
            report=report,
            complain=complain or self.say,
            observed=observed,
            held=Holding(self.store, self.clock).why,
            hooks=hooks,
        )
        driver.leases.keep()
        return driver

    def claim(self, job_id: str) -> None:
        """Acquire the lease of a job before other drivers can see it: they may not have its code."""
        from tpukit.kernel.leases import SECONDS

        self.store.acquire(f"{JOBS.name}/{job_id}", self.holder, SECONDS)

    def unclaim(self, job_id: str) -> None:
        """Release a claim of this process."""
        held = self.lease(job_id)
        if held and held.holder.name == self.holder.name:
            self.store.release(held)

    def lease(self, job_id: str) -> Lease | None:
        """Return the lease of the process that drives the job."""
        return self.store.lease(f"{JOBS.name}/{job_id}")

    def driven_by_another(self, job_id: str) -> str:
        """Return the other process that drives the job, or "" if there is none."""
        held = self.lease(job_id)
        return "" if held is None or held.holder.name == self.holder.name else who(held.holder)

    def get(self, job_id: str) -> Job:
        from tpukit.jobs.controller.driver import find

        return find(self.store, job_id)

    def find(self, name: str) -> Job:
        """Return a job by id, prefix of an id, or name (the newest of that name)."""
        matches = self.store.keys(JOBS, name)
        if name in matches or not matches:
            return self.get(name)
        meant = [job_id for job_id in matches if job_id.rsplit("-", 1)[0] == name] or matches
        if len(meant) == 1 or meant is not matches:
            return max((self.get(job_id) for job_id in meant), key=lambda job: job.created)
        raise NotFound(f"{name} could be {', '.join(sorted(matches))}", hint="write more characters of the id")

    def drives_itself(self, place: str) -> bool:
        from tpukit.places import by_name

        return place in self.places and by_name.capabilities_of(self.places, place).drives_itself

    def reaches(self, job: Job) -> bool:
        """Return True if this machine can act on the job in its place."""
        from tpukit.jobs.plan import Plan

        place = self.places.get(job.place)
        try:
            return place is not None and place.group(Plan.from_json(job.plan)) is not None
        except TpukitError:  # a plan that this version cannot read
            return False


def open_store() -> Store:
    """Return the store of this machine: $TPUKIT_STORE, the setting `store`, or a file."""
    from tpukit.jobs.spec import settings
    from tpukit.kernel.store.home import open_store

    return open_store(settings.store(), paths.state())


def open_places(
    clock: Clock, sender: Callable[[], str], serving: Callable[[str], None] | None = None
) -> Mapping[str, Place]:
    """Return the places. `serving`: the process drives jobs for all, and takes remarks about places here."""
    from tpukit.places import by_name

    return by_name.places(paths.data(), clock, sender, serving)


def sender_of(one: Store) -> str:
    """Return the mark that separates this store's jobs from those of others in shared places."""
    from tpukit.kernel.store import mark

    own = one.address if "://" in one.address else paths.mark(paths.state() / "sender")
    return mark.sender(one, lambda: own)


def shelf() -> Path:
    """Return the folder for snapshots of code."""
    return paths.data() / "code"


def this_process() -> Holder:
    from tpukit.kernel.store.process import this_process

    return this_process()


def this_user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a user id without a name, as in many containers
        return "unknown"


def who(one: Holder) -> str:
    """Return a holder in the form `ada@desk, process 4711`."""
    name = one.name.partition("/")[0] or one.user or "an unknown user"
    return f"{name}, process {one.pid}" if one.pid else name
