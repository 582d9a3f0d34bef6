"""Follow a job: drive it from this process unless another one does, and show it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from typing import TYPE_CHECKING

from tpukit.core.errors import TpukitError, Transient

if TYPE_CHECKING:
    from tpukit.jobs.rehearsal import Loss
    from tpukit.jobs.report.live import Screen
    from tpukit.jobs.use_cases.session import Session
    from tpukit.places.base import HostView, Observation

TICK_SECONDS = 0.2
AWAY_SECONDS = 1.0
"""Seconds between retries while the store is unreachable, and between checks for another driver."""
HAND_OVER_SECONDS = 60.0
"""Longest time for the place to accept a detached job: hosts of its last attempt leave first."""

Armed = Callable[[], AbstractContextManager[object]]
"""Opens a block that may be interrupted at any point."""


class Following:
    """One recorded job, driven and observed by this process. `loss`: a host to kill at a step.

    `armed` opens each block that drives or sleeps. After an interruption, the same method may be called again.
    """

    def __init__(self, session: Session, job_id: str, loss: Loss | None = None, armed: Armed = nullcontext) -> None:
        from tpukit.jobs.records import JOBS

        self._session, self._id, self._armed = session, job_id, armed
        self._clock = session.clock
        self.loss = loss  # None after the loss was injected
        self._driver = session.driver(observed=self._observe)
        with suppress(TpukitError):  # the first round retries
            # the submission already holds it; closing the driver releases it
            self._driver.leases.hold(f"{JOBS.name}/{job_id}")
        self._observation: Observation | None = None
        self._observed_at = 0.0
        self._asked_at = 0.0
        self._driven_by = ""
        self._away = ""
        self._unseen = False  # it was reported that a loss waits for an invisible step
        self._hand_over_due: float | None = None

    def close(self) -> None:
        self._driver.close()

    def start(self) -> None:
        """Take the first step."""
        with self._armed():
            self.round()

    def watch(self, screen: Screen | None = None, until: float | None = None) -> bool:
        """Drive and draw the job until it ends, and return True; False once the monotonic clock passes `until`.

        Only driving and sleeping can be interrupted, never drawing.
        """
        with screen or nullcontext():
            while True:
                with self._armed():
                    active = self.round()
                if screen is not None:
                    self._draw(screen, active)
                if not active:
                    return True
                if until is not None and self._clock.monotonic() >= until:
                    return False
                with self._armed():
                    self._clock.sleep(AWAY_SECONDS if self._away else TICK_SECONDS)

    def hand_over(self) -> bool:
        """Drive until the place has accepted the job and continues by itself. Return False if it did not in time."""
        if self._hand_over_due is None:
            self._hand_over_due = self._clock.monotonic() + HAND_OVER_SECONDS
        while True:
            try:
                with self._armed():
                    if self._handed_over():
                        return True
                    if self._clock.monotonic() > self._hand_over_due:
                        return False
                    self._clock.sleep(TICK_SECONDS)
            except Transient as error:
                self._say_away(error)
                with self._armed():
                    self._clock.sleep(AWAY_SECONDS)

    def _handed_over(self) -> bool:
        from tpukit.jobs.reasons import State
        from tpukit.places.base import Handle

        place = self._session.places[self._session.get(self._id).place]
        if not place.capabilities.drives_itself or not self.round():
            return True
        job = self._session.get(self._id)
        if not job.attempts:
            return False
        (seen,) = place.observe([Handle.of(job)])
        return not isinstance(seen, TpukitError) and seen.state is not State.PENDING

    def round(self) -> bool:
        """Run one round and return True while the job is active. An unreachable store only makes the display stale."""
        try:
            active = bool(self._driver.round([self._id]))
            self._say_who_drives()
        except Transient as error:
            self._say_away(error)
            return True
        self._away = ""
        return active

    def _draw(self, screen: Screen, active: bool) -> None:
        if self._observation is not None:
            screen.observe(self._observation)
            self._observation = None
        hosts = screen.update(self._clock.now())
        if active:
            self._lose(hosts)

    def _observe(self, _job_id: str, seen: Observation) -> None:
        self._observation = seen
        self._observed_at = self._clock.monotonic()

    def _say_who_drives(self) -> None:
        now = self._clock.monotonic()
        if now - self._observed_at < AWAY_SECONDS:
            if self._driven_by:
                self._session.say(self._id, "driven by this terminal now")
            self._driven_by = ""
            return
        if now - self._asked_at < AWAY_SECONDS:
            return
        self._asked_at = now
        driven_by = self._session.driven_by_another(self._id)
        if driven_by and driven_by != self._driven_by:
            self._session.say(self._id, f"driven by {driven_by}")
            self._driven_by = driven_by

    def _say_away(self, error: Transient) -> None:
        if not self._away:
            self._session.say(self._id, f"{error}\n  retrying; the job keeps running meanwhile")
        self._away = str(error)

    def _lose(self, hosts: Sequence[HostView]) -> None:
        from tpukit.jobs.records import JOBS
        from tpukit.kernel.store import change
        from tpukit.places.base import Handle

        victim = self.loss.victim(hosts) if self.loss else None
        if self.loss and not victim:
            self._say_unseen(self.loss, hosts)
        if not victim:
            return
        try:
            job = self._session.get(self._id)
            self._session.places[job.place].lose(Handle.of(job), victim.name)
        except Transient:  # the host is unreachable now: the next round retries
            return
        self.loss = None
        note = f"{victim.name} killed at step {victim.step} (`--lose`)"
        change(self._session.store, JOBS, self._id, lambda job: job, note=note, at=self._clock.now())

    def _say_unseen(self, loss: Loss, hosts: Sequence[HostView]) -> None:
        """Report a loss that waits for a step which is not visible: it would wait forever in silence."""
        from tpukit.jobs import report

        mine = [host for host in hosts if (host.slice, host.index) == (loss.slice, loss.index)]
        if self._unseen or any(host.step is not None for host in mine):
            return
        attempt = None
        with suppress(TpukitError):
            attempt = self._session.get(self._id).attempt
        if attempt and (unseen := report.unseen(mine, attempt.started, self._clock.now())):
            self._unseen = True
            text = f"--lose waits for step {loss.step} of host {loss.slice}-{loss.index}:"
            self._session.say(self._id, f"{text} {unseen}")
