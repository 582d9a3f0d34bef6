"""Observe jobs in their places: one call for all jobs of a place, with the idle time of each host."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from tpukit.core.errors import TpukitError
from tpukit.jobs.controller.liveness import Liveness
from tpukit.jobs.controller.plans import Plans
from tpukit.jobs.reasons import State
from tpukit.jobs.records import Job
from tpukit.jobs.save_costs import Saves
from tpukit.places.base import Observation, Place


class Observer:
    def __init__(self, places: Mapping[str, Place], observed: Callable[[str, Observation], None]) -> None:
        self._places = places
        self._observed = observed  # called with each observation, for display
        self._liveness = Liveness()
        self._saves = Saves()
        self.plans = Plans()

    def group(self, job: Job) -> str | None:
        """Return the group in which the job is observed; None when its place cannot be reached from here."""
        place = self._places.get(job.place)
        if place is None:
            return None
        group = place.group(self.plans.of(job))
        return None if group is None else f"{job.place} {group}".strip()

    def observe(self, jobs: Sequence[Job]) -> Mapping[str, Observation | TpukitError]:
        """Observe the jobs of one group. Jobs without an attempt are left out."""
        running = [job for job in jobs if job.attempts]
        if not running:
            return {}
        seen = self._places[running[0].place].observe([self.plans.handle(job) for job in running])
        return {job.id: self._with_idle(job, one) for job, one in zip(running, seen, strict=True)}

    def keep_only(self, jobs: Sequence[Job]) -> None:
        active = {job.id for job in jobs}
        self._liveness.keep_only(active)
        self._saves.keep_only(active)
        self.plans.keep_only(active)

    def _with_idle(self, job: Job, seen: Observation | TpukitError) -> Observation | TpukitError:
        if isinstance(seen, TpukitError) or job.attempt is None:
            return seen
        running = seen.state is State.RUNNING
        seen = replace(seen, hosts=self._liveness.count(job.id, job.attempt.number, seen.hosts, running=running))
        if running:
            seen = replace(seen, save_held=self._saves.held(job.id, job.attempt.number, seen.hosts))
        self._observed(job.id, seen)
        return seen
