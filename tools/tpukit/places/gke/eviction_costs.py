"""Write what an eviction of each running job costs on its Workload, for Kueue to choose the victim that loses least.

A cost is written slowly, and only if it changed. The Workload of a job that does not run has none: a boost on it would
let the job evict others of its own priority. A cluster whose Kueue ignores boosts is left as it is.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from tpukit.core.clock import Clock
from tpukit.core.errors import Conflict, Denied, Invalid, LeaseLost, NotFound, TpukitError
from tpukit.goodput import eviction, rates
from tpukit.goodput.eviction import EvictionCost, Exposure
from tpukit.jobs.reasons import State
from tpukit.kube import Cluster
from tpukit.places.base import FollowUp, Handle, Observation, QueueCost
from tpukit.places.gke.jobsets import Doc
from tpukit.teams import boosts, workloads

CLASSES_SECONDS = 600.0
"""Age at which priority classes are read again."""
LOOK_SECONDS = 1800.0
"""Time between two tests of whether Kueue follows boosts."""
REMOVAL_SECONDS = 5.0
"""Time between two tries to remove a cost."""
_NO_NUMBER = "?"
"""A boost that Kueue refuses if it reads boosts, and accepts if it ignores them."""
_MOST = 10_000


@dataclass(slots=True)
class EvictionCosts:
    """The costs in one cluster. Thread-safe."""

    cluster: Cluster
    clock: Clock
    say: Callable[[str], None]
    _tried: dict[str, float] = field(default_factory=dict)  # by uid of the Workload: when, on the clock with sleep
    _classes: tuple[float, tuple[int, ...]] | None = None
    _follows: float | None = None  # when Kueue was last seen to read boosts
    _off: tuple[float, str] | None = None  # since when nothing is written, and why
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def noted(
        self, handles: Sequence[Handle], seen: Sequence[Observation | TpukitError], queued: Sequence[Doc | None]
    ) -> list[Observation | TpukitError]:
        """Return the observations, with the costs that are due as follow-ups. `queued` are the jobs' Workloads."""
        together = list(zip(handles, seen, queued, strict=True))
        due = [self._is_due(one, workload) for _, one, workload in together]
        if not any(due):
            return list(seen)
        now = self.clock.now()
        costs = eviction.costs(
            {
                handle.plan.id: exposure(handle, running, now)
                for handle, one, workload in together
                if (running := _running(one, workload))
            }
        )
        return [
            _with_cost(one, workload, costs.get(handle.plan.id)) if is_due else one
            for (handle, one, workload), is_due in zip(together, due, strict=True)
        ]

    def write(self, team: str, wanted: QueueCost) -> None:
        """Write a cost, or remove it. A cluster that does not take it is not asked again for a while.

        Raises:
            LeaseLost: Another driver has the job.
        """
        with self._lock:
            if len(self._tried) > _MOST:
                self._tried.clear()
            self._tried[wanted.uid] = self.clock.elapsed()
        try:
            change = boosts.removed() if wanted.cost is None else self._change(team, wanted, wanted.cost)
            if change:
                self._patch(team, wanted, change)
        except LeaseLost:
            raise
        except (Conflict, NotFound):
            return  # it changed meanwhile: the next round sees how
        except Denied as error:
            self._stop(f"this account may not weigh evictions: {error.message}; update the roles of `tpu serve`")
        except TpukitError:  # the job does not depend on it
            return

    def _is_due(self, seen: Observation | TpukitError, workload: Doc | None) -> bool:
        """Return whether a write is to be tried. A job that runs no more loses its boost without delay."""
        if isinstance(seen, TpukitError) or workload is None or boosts.is_foreign(workload):
            return False
        now = self.clock.elapsed()
        since = now - self._tried.get(str(workload["metadata"]["uid"]), -math.inf)
        if not _running(seen, workload):
            return boosts.has_cost(workload) and since >= REMOVAL_SECONDS
        resting = self._off is not None and now - self._off[0] < LOOK_SECONDS
        return not resting and since >= boosts.PACE_SECONDS

    def _change(self, team: str, wanted: QueueCost, cost: EvictionCost) -> Mapping[str, str | None]:
        """Return the annotations to write; empty if the boost has hardly changed, or Kueue ignores it."""
        most = boosts.room(wanted.priority, self._read_classes())
        value = boosts.boost(cost.usd, most)
        if not boosts.is_due(wanted.boost, value, most) or not self._is_followed(team, wanted):
            return {}
        return boosts.written(value, cost.usd, cost.unsaved)

    def _read_classes(self) -> tuple[int, ...]:
        """Return the values of all priorities that Kueue compares: its own classes, and those of Kubernetes."""
        now = self.clock.elapsed()
        if self._classes is None or now - self._classes[0] >= CLASSES_SECONDS:
            there = [*self.cluster.list("WorkloadPriorityClass"), *self.cluster.list("PriorityClass")]
            self._classes = now, tuple(int(one.get("value") or 0) for one in there)
        return self._classes[1]

    def _is_followed(self, team: str, wanted: QueueCost) -> bool:
        """Return whether Kueue reads boosts, by a dry run with one that is no number.

        Its feature `PriorityBoost` is alpha and off by default, and members of a team may not read its configuration.
        """
        now = self.clock.elapsed()
        if self._follows is not None and now - self._follows < LOOK_SECONDS:
            return True
        try:
            self._patch(team, wanted, {boosts.BOOST: _NO_NUMBER}, dry_run=True)
        except (Invalid, Denied) as error:
            if boosts.BOOST not in error.message:
                raise
            self._follows, self._off = now, None
            return True
        self._stop(
            "Kueue ignores what an eviction costs, and evicts the newest job: its feature PriorityBoost is off or"
            " unknown; `tpu cluster addons` turns it on"
        )
        return False

    def _patch(self, team: str, wanted: QueueCost, notes: Mapping[str, str | None], *, dry_run: bool = False) -> None:
        change = {"metadata": {"annotations": notes}}
        self.cluster.patch(
            "Workload", wanted.entry, change, team, uid=wanted.uid, version=wanted.version, dry_run=dry_run
        )

    def _stop(self, why: str) -> None:
        """Write no cost for a while, and say why unless it was said."""
        is_new = self._off is None or self._off[1] != why
        self._off, self._follows = (self.clock.elapsed(), why), None
        if is_new:
            self.say(f"{self.cluster.server}: {why}")


def _with_cost(seen: Observation | TpukitError, workload: Doc | None, cost: EvictionCost | None) -> Observation:
    assert isinstance(seen, Observation)
    assert workload is not None
    meta = workload["metadata"]
    name, uid, version = str(meta["name"]), str(meta["uid"]), str(meta.get("resourceVersion", ""))
    wanted = QueueCost(name, uid, version, workloads.priority(workload), boosts.current(workload), cost)
    return replace(seen, follow_up=replace(seen.follow_up or FollowUp(), queue_cost=wanted))


def exposure(handle: Handle, seen: Observation, now: float) -> Exposure:
    """Return what a running attempt shows of its unsaved work."""
    marks, furthest = handle.attempt.marks, max(seen.hosts, key=lambda host: host.step or -1, default=None)
    step, moved = (furthest.step, furthest.moved) if furthest else (None, 0.0)
    pace = furthest.steps_per_s if furthest else None
    started = seen.started or handle.attempt.started
    return Exposure(
        ran=max(0.0, now - started) if started else 0.0,
        unsaved=eviction.unsaved(step, max(seen.saved, handle.attempt.saved), marks, moved, pace),
        starting=eviction.starting(marks),
        chips=handle.plan.spec.slices * handle.plan.slice.chips,
        usd_per_hour=rates.list_price(handle.plan),
    )


def _running(seen: Observation | TpukitError, workload: Doc | None) -> Observation | None:
    """Return the observation of a job that runs and that Kueue has admitted."""
    if isinstance(seen, TpukitError) or seen.state is not State.RUNNING or workload is None:
        return None
    return seen if workloads.runs(workload) else None
