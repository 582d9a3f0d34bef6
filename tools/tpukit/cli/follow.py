"""Follow a job: show it, and drive it from this terminal unless another process does."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tpukit.cli.interrupts import Interrupted, Interrupts
from tpukit.core.errors import TpukitError, Transient

if TYPE_CHECKING:
    from tpukit.jobs.rehearsal import Loss
    from tpukit.jobs.report.live import Screen
    from tpukit.places.base import HostView, Observation

TICK_SECONDS = 0.2
AWAY_SECONDS = 1.0
"""Seconds between retries while the store is unreachable, and between checks for another driver."""
HAND_OVER_SECONDS = 60.0
"""Longest time for the place to accept a detached job: hosts of its last attempt leave first."""


class Follower:
    """Follower of one recorded job. It handles and reports every signal from now on."""

    def __init__(self, job_id: str, on_interrupt: str, interrupts: Interrupts, loss: Loss | None = None) -> None:
        from tpukit.cli import context
        from tpukit.jobs.records import JOBS

        self._id, self._on_interrupt, self._interrupts = job_id, on_interrupt, interrupts
        self._loss = loss  # None after the loss was injected
        self._clock = context.CLOCK
        self._driver = context.driver(observed=self._observe)
        with suppress(TpukitError):  # the first round retries
            # the submission already holds it; closing the driver releases it
            self._driver.leases.hold(f"{JOBS.name}/{job_id}")
        self._observation: Observation | None = None
        self._observed_at = 0.0
        self._asked_at = 0.0
        self._driven_by = ""
        self._away = ""
        self._unseen = False  # it was reported that a loss waits for an invisible step
        self._early: Interrupted | None = None

    def start(self) -> None:
        """Take the first step. Hosts take seconds to start, and the display modules load meanwhile."""
        try:
            with self._interrupts.armed():
                self._round()
        except Interrupted as interrupted:
            self._early = interrupted

    def follow(self) -> int:
        """Follow the job to its end, or until the user leaves, and return the exit code."""
        from tpukit.cli import context
        from tpukit.jobs.report.live import Screen

        screen = Screen(context.store(), context.places(), self._id)
        while True:
            try:
                if self._early is not None:
                    interrupted, self._early = self._early, None
                    raise interrupted
                self._watch(screen)
            except Interrupted as interrupted:
                code = self._answer(interrupted)
                if code is not None:
                    return code
            else:
                self._driver.close()
                return self._result()

    def hand_over(self) -> int:
        """Drive until the place has accepted the job and continues by itself, and return the exit code."""
        from tpukit.cli import context
        from tpukit.jobs.reasons import State
        from tpukit.places.base import Handle

        due = self._clock.monotonic() + HAND_OVER_SECONDS
        while True:
            try:
                with self._interrupts.armed():
                    job = context.get(self._id)
                    place = context.places()[job.place]
                    if not place.capabilities.drives_itself or not self._round():
                        break
                    job = context.get(self._id)
                    if job.attempts:
                        (seen,) = place.observe([Handle.of(job)])
                        if not isinstance(seen, TpukitError) and seen.state is not State.PENDING:
                            break
                    if self._clock.monotonic() > due:
                        text = f"{job.place} did not accept the job within {HAND_OVER_SECONDS:.0f} s"
                        context.say(self._id, f"{text}; `tpu serve` keeps trying, `tpu job show {self._id}` shows why")
                        break
                    self._clock.sleep(TICK_SECONDS)
            except Transient as error:
                self._say_away(error)
                with suppress(Interrupted), self._interrupts.armed():
                    self._clock.sleep(AWAY_SECONDS)
            except Interrupted as interrupted:
                code = self._answer(interrupted)
                if code is not None:
                    return code
                if self._on_interrupt == "detach":  # the user chose to stop the job: wait for its end
                    return self.follow()
        self._driver.close()
        return 0

    def _watch(self, screen: Screen) -> None:
        """Draw the job until it ends. Only driving and sleeping can be interrupted, never drawing."""
        with screen:
            while True:
                with self._interrupts.armed():
                    active = self._round()
                if self._observation is not None:
                    screen.observe(self._observation)
                    self._observation = None
                hosts = screen.update(self._clock.now())
                if not active:
                    return
                self._lose(hosts)
                with self._interrupts.armed():
                    self._clock.sleep(AWAY_SECONDS if self._away else TICK_SECONDS)

    def _round(self) -> bool:
        """Run one round and return True while the job is active. An unreachable store only makes the display stale."""
        try:
            active = bool(self._driver.round([self._id]))
            self._say_who_drives()
        except Transient as error:
            self._say_away(error)
            return True
        self._away = ""
        return active

    def _observe(self, _job_id: str, seen: Observation) -> None:
        self._observation = seen
        self._observed_at = self._clock.monotonic()

    def _say_who_drives(self) -> None:
        from tpukit.cli import context

        now = self._clock.monotonic()
        if now - self._observed_at < AWAY_SECONDS:
            if self._driven_by:
                context.say(self._id, "driven by this terminal now")
            self._driven_by = ""
            return
        if now - self._asked_at < AWAY_SECONDS:
            return
        self._asked_at = now
        driven_by = context.driven_by_another(self._id)
        if driven_by and driven_by != self._driven_by:
            context.say(self._id, f"driven by {driven_by}")
            self._driven_by = driven_by

    def _say_away(self, error: Transient) -> None:
        from tpukit.cli import context

        if not self._away:
            context.say(self._id, f"{error}\n  retrying; the job keeps running meanwhile")
        self._away = str(error)

    def _lose(self, hosts: Sequence[HostView]) -> None:
        from tpukit.cli import context
        from tpukit.jobs.records import JOBS
        from tpukit.kernel.store import change
        from tpukit.places.base import Handle

        victim = self._loss.victim(hosts) if self._loss else None
        if self._loss and not victim:
            self._say_unseen(self._loss, hosts)
        if not victim:
            return
        try:
            job = context.get(self._id)
            context.places()[job.place].lose(Handle.of(job), victim.name)
        except Transient:  # the host is unreachable now: the next round retries
            return
        self._loss = None
        note = f"{victim.name} killed at step {victim.step} (`--lose`)"
        change(context.store(), JOBS, self._id, lambda job: job, note=note, at=self._clock.now())

    def _say_unseen(self, loss: Loss, hosts: Sequence[HostView]) -> None:
        """Report a loss that waits for a step which is not visible: it would wait forever in silence."""
        from tpukit.cli import context
        from tpukit.jobs import report

        mine = [host for host in hosts if (host.slice, host.index) == (loss.slice, loss.index)]
        if self._unseen or any(host.step is not None for host in mine):
            return
        attempt = None
        with suppress(TpukitError):
            attempt = context.get(self._id).attempt
        if attempt and (unseen := report.unseen(mine, attempt.started, self._clock.now())):
            self._unseen = True
            text = f"--lose waits for step {loss.step} of host {loss.slice}-{loss.index}:"
            context.say(self._id, f"{text} {unseen}")

    def _result(self) -> int:
        from tpukit.cli import context
        from tpukit.jobs.reasons import State
        from tpukit.jobs.rules import SAY_PROGRESS

        completed = context.get(self._id).state is State.COMPLETED
        loss = self._loss
        if loss is not None:
            text = f"--lose never happened: host {loss.slice}-{loss.index} did not report step {loss.step}"
            context.say(self._id, f"{text} while it ran\n  lose it earlier; if it shows no steps, {SAY_PROGRESS}")
        return 0 if completed and loss is None else 1

    def _answer(self, interrupted: Interrupted) -> int | None:
        """Act on the user's choice; return the exit code if this terminal leaves, None if it continues."""
        from tpukit.cli import context

        choice = self._ask() if interrupted.by_person else "detach"
        if choice == "detach":
            return self._detach()
        if choice == "stop":
            self._on_interrupt = "detach"  # a second Ctrl-C must not wait
            self._loss = None
            try:
                ask_to_stop(self._id)
            except TpukitError as error:
                context.say(self._id, f"the request to stop could not be recorded: {error}")
                return None
            context.say(self._id, "stopping; press Ctrl-C again to detach")
        return None

    def _ask(self) -> str:
        if self._on_interrupt != "ask":
            return self._on_interrupt
        if not sys.stdin.isatty():
            return "detach"
        from tpukit.cli import choices

        try:
            with self._interrupts.armed():
                return choices.ask(self._round, TICK_SECONDS)
        except (Interrupted, EOFError):
            return "detach"

    def _detach(self) -> int:
        from tpukit.cli import context, unattended

        self._driver.close()
        text = f"detached: {self._id} keeps running; `tpu job stop {self._id}` stops it"
        with suppress(OSError, TpukitError):
            click.echo(text, err=True)
            unattended.say([context.get(self._id)])
        return 130


def ask_to_stop(job_id: str) -> None:
    from tpukit.cli import context
    from tpukit.jobs import person_requests

    person_requests.stop(context.store(), job_id, context.owner(), context.CLOCK.now())
