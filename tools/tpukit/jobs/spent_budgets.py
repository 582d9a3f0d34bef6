"""Hold new jobs whose team has spent its budget."""

from __future__ import annotations

import math
from contextlib import suppress

from tpukit.core.clock import Clock
from tpukit.core.errors import TpukitError
from tpukit.goodput import budgets
from tpukit.jobs.records import Job
from tpukit.kernel.store import Store, everything

CHECK_SECONDS = 60.0


class Holding:
    """Teams over budget, read from the store once a minute. An unreachable store changes nothing."""

    def __init__(self, store: Store, clock: Clock) -> None:
        self._store, self._clock = store, clock
        self._checked = -math.inf
        self._teams: dict[str, str] = {}

    def why(self, job: Job) -> str:
        """Return why a new job must wait; empty if it may begin."""
        if self._clock.monotonic() - self._checked >= CHECK_SECONDS:
            self._checked = self._clock.monotonic()
            with suppress(TpukitError):
                self._teams = self._spent()
        return self._teams.get(job.team, "")

    def _spent(self) -> dict[str, str]:
        now = self._clock.now()
        if not any(entry.value.hold for entry in everything(self._store, budgets.BUDGETS)):
            return {}
        jobs = budgets.recent(self._store, now - budgets.WINDOW_SECONDS)
        over = [one for one in budgets.spending(self._store, jobs, now) if one.is_over and one.budget.hold]
        return {
            one.budget.team: f"waiting: the budget of team {one.budget.team}, {one.budget.usd:,.2f} USD in "
            f"{budgets.WINDOW_DAYS} days, is spent"
            for one in over
        }
