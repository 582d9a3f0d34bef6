"""A place that acts by itself between calls: it queues, evicts, restarts, preempts, loses hosts and forgets.

It also loses answers, and refuses calls that would harm a real place. A seed makes it repeatable.

One object represents a job there, as a JobSet does: it lives through many attempts and counts restarts and evictions.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from journeys.bare_place import BarePlace
from tpukit.core.clock import ManualClock
from tpukit.core.errors import Conflict, NotYet, TpukitError, Transient
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import MEANINGS, Budget, Reason, State
from tpukit.jobs.rules import RULES, Action
from tpukit.places.base import Handle, HostView, Observation
from tpukit.places.capabilities import Capabilities

ONE_BY_ONE = ("evict", "lose", "preempt", "break", "finish")


@dataclass
class Object:
    """The state of one job in the place."""

    uid: int
    first: int  # the attempt that created it
    plan: Plan
    phase: str = "queued"  # queued | running | completed | failed | leaving
    since: float = 0.0
    number: int = 0  # of its current attempt
    saved: int = -1
    charged: int = 0
    history: dict[int, tuple[Reason, float]] = field(default_factory=dict)  # ends of attempts by number

    @property
    def unfinished(self) -> bool:
        return self.phase in ("queued", "running", "leaving")

    @property
    def runs(self) -> bool:
        return self.phase in ("running", "leaving")


class AutonomousPlace(BarePlace):
    capabilities = Capabilities(drives_itself=True)

    def __init__(self, clock: ManualClock, seed: int, *, answers_lost: float = 0.1, forgets_after: float = 1e9) -> None:
        self._clock, self._dice = clock, random.Random(seed)
        self._answers_lost, self._forgets_after = answers_lost, forgets_after
        self.objects: dict[str, Object] = {}
        self.uids = 0
        self.truth: Counter[tuple[str, Budget]] = Counter()  # real ends of attempts, by the budget charged
        self.calm = False  # no more faults
        self.errors: dict[str, int] = {}  # remaining failures of programs by job

    # Spontaneous events

    def advance(self) -> None:
        """Let events happen between two calls."""
        for job_id, it in list(self.objects.items()):
            self._advance(job_id, it)

    def _advance(self, job_id: str, it: Object) -> None:
        passed = self._clock.now() - it.since
        if it.phase == "leaving" and (passed > 3 or self._dice.random() < 0.3):
            del self.objects[job_id]
        elif it.phase == "queued" and (self._dice.random() < 0.4 or self.calm):
            it.phase, it.since = "running", self._clock.now()
        elif it.phase in ("completed", "failed") and passed > self._forgets_after:
            del self.objects[job_id]
        elif it.phase == "running":
            if self._dice.random() < 0.2:
                it.saved += 1
            if self.calm or self._dice.random() < 0.25:
                self._happen(job_id, it, "finish" if self.calm else self._dice.choice(ONE_BY_ONE))

    def _happen(self, job_id: str, it: Object, what: str) -> None:
        if what == "break" and not self.errors.get(job_id):
            return
        if what == "finish" and self.errors.get(job_id):
            return
        if what == "evict":
            self._next(job_id, it, Reason.EVICTED)
            it.phase = "queued"
        elif what in ("lose", "preempt"):
            reason = Reason.HOST_LOST if what == "lose" else Reason.PREEMPTED
            if RULES[it.plan.spec.rule][MEANINGS[reason].lost] is Action.NOTHING:
                self._finish(job_id, it, reason)
            else:
                self._next(job_id, it, reason)
        elif what == "break":
            self.errors[job_id] -= 1
            if it.charged < it.plan.spec.max.restarts:
                it.charged += 1
                self._next(job_id, it, Reason.USER_ERROR)
            else:
                self._finish(job_id, it, Reason.USER_ERROR)
        else:
            self._finish(job_id, it, Reason.DONE)

    def _next(self, job_id: str, it: Object, reason: Reason) -> None:
        self._over(job_id, it, reason)
        it.number += 1

    def _finish(self, job_id: str, it: Object, reason: Reason) -> None:
        self._over(job_id, it, reason)
        it.phase = "completed" if reason is Reason.DONE else "failed"

    def _over(self, job_id: str, it: Object, reason: Reason) -> None:
        it.history[it.number] = (reason, self._clock.now())
        it.since = self._clock.now()
        self.truth[job_id, MEANINGS[reason].budget] += 1

    # The contract of a place

    def live(self, job_id: str) -> bool:
        it = self.objects.get(job_id)
        return it is not None and it.unfinished

    def submit(self, handle: Handle) -> None:
        self.advance()
        self._may_fail("before")
        job_id, attempt = handle.plan.id, handle.attempt
        it = self.objects.get(job_id)
        if it is not None:
            if it.phase != "leaving" and it.unfinished and it.number >= attempt.number:
                return
            if it.phase == "leaving":
                raise NotYet("hosts are leaving")
            if it.unfinished:
                raise Conflict(f"it is at attempt {it.number} and has not ended")
            if it.first >= attempt.number:
                return  # created for this attempt, and ended since
            it.phase, it.since = "leaving", self._clock.now()
            raise NotYet("the last one is being removed")
        self.uids += 1
        saved = attempt.saved if attempt.stage else -1
        self.objects[job_id] = Object(
            self.uids, attempt.number, handle.plan, since=self._clock.now(), number=attempt.number, saved=saved
        )
        self._may_fail("after")

    def stop(self, handle: Handle, grace: float) -> None:
        self.advance()
        self._may_fail("before")
        it = self.objects.get(handle.plan.id)
        if it is not None and it.phase in ("queued", "running"):
            it.phase, it.since = "leaving", self._clock.now()
        self._may_fail("after")

    def observe(self, handles: Sequence[Handle]) -> Sequence[Observation | TpukitError]:
        self.advance()
        self._may_fail("before")
        return [self._observe(handle) for handle in handles]

    def _observe(self, handle: Handle) -> Observation:
        attempt, it = handle.attempt, self.objects.get(handle.plan.id)
        hosts = self._hosts(handle, it)
        if it is None:
            if attempt.learned:
                return Observation(
                    State.FAILED, hosts, reason=Reason.CANCELLED, detail="it is gone", active=False, saved=attempt.saved
                )
            return Observation(State.PENDING, hosts, active=False)
        learned = {"uid": it.uid}
        if attempt.number > it.number or attempt.number < it.first:
            active = it.unfinished
            return Observation(State.PENDING, hosts, active=active)
        if attempt.number in it.history:
            reason, ended = it.history[attempt.number]
            moved_on = it.number > attempt.number
            return Observation(
                State.COMPLETED if reason is Reason.DONE else State.FAILED,
                hosts,
                reason=reason,
                host="" if reason is Reason.DONE else handle.plan.host_names[0],
                saved=it.saved,
                active=it.unfinished,
                ended=ended,
                learned=learned,
                next=learned if moved_on else None,
            )
        if it.phase == "queued":
            return Observation(State.SCHEDULED, hosts, detail="it waits for its turn", learned=learned)
        return Observation(State.RUNNING, hosts, it.since, it.saved, ran=self._clock.now() - it.since, learned=learned)

    def _hosts(self, handle: Handle, it: Object | None) -> tuple[HostView, ...]:
        state = "running" if it and it.runs else "waiting"
        return tuple(HostView(name, 0, index, state) for index, name in enumerate(handle.plan.host_names))

    def _may_fail(self, when: str) -> None:
        if not self.calm and self._dice.random() < self._answers_lost:
            raise Transient("the connection was lost" if when == "before" else "the answer was lost")
