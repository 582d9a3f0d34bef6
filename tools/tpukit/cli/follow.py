"""Follow a job in a terminal: show it, and ask what Ctrl-C means."""

from __future__ import annotations

import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import click

from tpukit.cli.interrupts import Interrupted, Interrupts
from tpukit.core.errors import TpukitError

if TYPE_CHECKING:
    from tpukit.jobs.rehearsal import Loss


class Follower:
    """Follower of one recorded job. It handles and reports every signal from now on."""

    def __init__(self, job_id: str, on_interrupt: str, interrupts: Interrupts, loss: Loss | None = None) -> None:
        from tpukit.cli import context
        from tpukit.jobs.use_cases.following import Following

        self._id, self._on_interrupt, self._interrupts = job_id, on_interrupt, interrupts
        self._session = context.session()
        self._following = Following(self._session, job_id, loss, interrupts.armed)
        self._early: Interrupted | None = None

    def start(self) -> None:
        """Take the first step. Hosts take seconds to start, and the display modules load meanwhile."""
        try:
            self._following.start()
        except Interrupted as interrupted:
            self._early = interrupted

    def follow(self) -> int:
        """Follow the job to its end, or until the user leaves, and return the exit code."""
        from tpukit.jobs.report.live import Screen

        screen = Screen(self._session.store, self._session.places, self._id)
        while True:
            try:
                if self._early is not None:
                    interrupted, self._early = self._early, None
                    raise interrupted
                self._following.watch(screen)
            except Interrupted as interrupted:
                code = self._answer(interrupted)
                if code is not None:
                    return code
            else:
                self._following.close()
                return self._result()

    def hand_over(self) -> int:
        """Drive until the place has accepted the job and continues by itself, and return the exit code."""
        while True:
            try:
                taken = self._following.hand_over()
            except Interrupted as interrupted:
                code = self._answer(interrupted)
                if code is not None:
                    return code
                if self._on_interrupt == "detach":  # the user chose to stop the job: wait for its end
                    return self.follow()
            else:
                break
        if not taken:
            self._say_not_taken()
        self._following.close()
        return 0

    def _say_not_taken(self) -> None:
        from tpukit.jobs.use_cases.following import HAND_OVER_SECONDS

        text = f"{self._session.get(self._id).place} did not accept the job within {HAND_OVER_SECONDS:.0f} s"
        self._session.say(self._id, f"{text}; `tpu serve` keeps trying, `tpu job show {self._id}` shows why")

    def _result(self) -> int:
        from tpukit.jobs.reasons import State
        from tpukit.jobs.rules import SAY_PROGRESS

        completed = self._session.get(self._id).state is State.COMPLETED
        loss = self._following.loss
        if loss is not None:
            text = f"--lose never happened: host {loss.slice}-{loss.index} did not report step {loss.step}"
            self._session.say(self._id, f"{text} while it ran\n  lose it earlier; if it shows no steps, {SAY_PROGRESS}")
        return 0 if completed and loss is None else 1

    def _answer(self, interrupted: Interrupted) -> int | None:
        """Act on the user's choice; return the exit code if this terminal leaves, None if it continues."""
        from tpukit.jobs.use_cases import requests

        choice = self._ask() if interrupted.by_person else "detach"
        if choice == "detach":
            return self._detach()
        if choice == "stop":
            self._on_interrupt = "detach"  # a second Ctrl-C must not wait
            self._following.loss = None
            try:
                requests.stop(self._session, self._id)
            except TpukitError as error:
                self._session.say(self._id, f"the request to stop could not be recorded: {error}")
                return None
            self._session.say(self._id, "stopping; press Ctrl-C again to detach")
        return None

    def _ask(self) -> str:
        if self._on_interrupt != "ask":
            return self._on_interrupt
        if not sys.stdin.isatty():
            return "detach"
        from tpukit.cli import choices
        from tpukit.jobs.use_cases.following import TICK_SECONDS

        try:
            with self._interrupts.armed():
                return choices.ask(self._following.round, TICK_SECONDS)
        except (Interrupted, EOFError):
            return "detach"

    def _detach(self) -> int:
        from tpukit.cli import unattended

        self._following.close()
        text = f"detached: {self._id} keeps running; `tpu job stop {self._id}` stops it"
        with suppress(OSError, TpukitError):
            click.echo(text, err=True)
            unattended.say([self._session.get(self._id)])
        return 130
