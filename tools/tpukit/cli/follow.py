"""Follow a job: drive it from this terminal where no other process does, and show it either way."""

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
"""Between two tries while the store is away, and between two questions for who else drives the job."""
HAND_OVER_SECONDS = 60.0
"""How long a detached job may take to be taken by its place: hosts of its last attempt leave first."""


class Follower:
    """Of one job, whose record is there. Everything that is heard from now on is answered, and said."""

    def __init__(self, job_id: str, on_interrupt: str, interrupts: Interrupts, loss: Loss | None = None) -> None:
        from tpukit.cli import context
        from tpukit.jobs.records import JOBS

        self._id, self._on_interrupt, self._interrupts = job_id, on_interrupt, interrupts
        self._loss = loss  # until it happened
        self._clock = context.CLOCK
        self._driver = context.driver(observed=self._observe)
        with suppress(TpukitError):  # then the first round tries again
            self._driver.leases.hold(f"{JOBS.name}/{job_id}")  # whoever sent it had it: it is given back with the rest
        self._observation: Observation | None = None
        self._observed_at = 0.0
        self._asked_at = 0.0
        self._driven_by = ""
        self._away = ""
        self._unseen = False  # whether it was said that a loss waits for what cannot be seen
        self._early: Interrupted | None = None

    def start(self) -> None:
        """Take the first step. Hosts need seconds to start: they do so while we load what to show them with."""
        try:
            with self._interrupts.armed():
                self._round()
        except Interrupted as interrupted:
            self._early = interrupted

    def follow(self) -> int:
        """To its end, or until the person leaves: the exit code."""
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
        """Drive until the place has the job, where it then goes on by itself: the exit code."""
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
                        text = f"{job.place} did not take it in {HAND_OVER_SECONDS:.0f} s"
                        context.say(self._id, f"{text}; `tpu serve` tries on, `tpu job show {self._id}` says why")
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
                if self._on_interrupt == "detach":  # it was told to stop: see it to its end
                    return self.follow()
        self._driver.close()
        return 0

    def _watch(self, screen: Screen) -> None:
        """Only driving and sleeping may be broken off: what is drawn is drawn to its end."""
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
        """Whether the job is still active. A store that is away costs staleness, nothing else."""
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
                context.say(self._id, "driven from here now")
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
            context.say(self._id, f"{error}\n  tried again; the job does not depend on it")
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
        except Transient:  # the host does not answer now: the next round tries again
            return
        self._loss = None
        note = f"{victim.name} killed at step {victim.step} (`--lose`)"
        change(context.store(), JOBS, self._id, lambda job: job, note=note, at=self._clock.now())

    def _say_unseen(self, loss: Loss, hosts: Sequence[HostView]) -> None:
        """A loss that waits for a step which nobody can see would wait for ever without a word."""
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
        """What the person wants: the exit code where this terminal leaves, None where it goes on."""
        from tpukit.cli import context

        choice = self._ask() if interrupted.by_person else "detach"
        if choice == "detach":
            return self._detach()
        if choice == "stop":
            self._on_interrupt = "detach"  # a second Ctrl-C does not want to wait
            self._loss = None
            try:
                ask_to_stop(self._id)
            except TpukitError as error:
                context.say(self._id, f"it was not told to stop: {error}")
                return None
            context.say(self._id, "is being stopped; Ctrl-C again detaches from it")
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
        text = f"detached: {self._id} goes on; `tpu job stop {self._id}` stops it"
        with suppress(OSError, TpukitError):
            click.echo(text, err=True)
            unattended.say([context.get(self._id)])
        return 130


def ask_to_stop(job_id: str) -> None:
    from tpukit.cli import context
    from tpukit.jobs import person_requests

    person_requests.stop(context.store(), job_id, context.owner(), context.CLOCK.now())
