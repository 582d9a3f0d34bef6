"""Measurements of attempts for advice: saves, losses, and the time that slices were held. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields

from tpukit.goodput.causes import Cause, of_attempt
from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.jobs.records import Attempt

_NOT_LOST = (Reason.EVICTED, Reason.NO_CAPACITY, Reason.PORT_LOST)
"""Reasons paid by the hardware budget that are no loss of running hardware."""


@dataclass(frozen=True, slots=True)
class Measured:
    """Sums, so that those of many attempts add up."""

    steps: float = 0.0  # new steps
    saves: float = 0.0  # with a measured cost
    saving: float = 0.0  # seconds that they blocked training
    squares: float = 0.0
    stepping: float = 0.0  # seconds between steps in attempts with measured saves
    losses: float = 0.0  # attempts that lost hardware
    running: float = 0.0  # seconds for which attempts ran
    back: float = 0.0  # seconds of starting, compiling and repeated steps in attempts that followed a loss

    def plus(self, other: Measured) -> Measured:
        return Measured(*(getattr(self, one.name) + getattr(other, one.name) for one in fields(self)))

    @property
    def save_seconds(self) -> float | None:
        """The seconds that a save blocks training; None if no save was measured."""
        return self.saving / self.saves if self.saves else None

    @property
    def save_error(self) -> float | None:
        """The standard error of `save_seconds`; None below two saves."""
        if self.saves < 2:
            return None
        mean = self.saving / self.saves
        return math.sqrt(max(0.0, self.squares / self.saves - mean * mean) / (self.saves - 1))

    @property
    def save_every(self) -> float | None:
        """The seconds between two saves."""
        return self.stepping / self.saves if self.saves else None

    @property
    def loss_rate(self) -> float | None:
        """The losses per second; None if nothing ran."""
        return self.losses / self.running if self.running > 0 else None

    def to_record(self) -> dict[str, float]:
        return {one.name: getattr(self, one.name) for one in fields(self)}

    @staticmethod
    def from_record(stored: Mapping[str, float]) -> Measured:
        return Measured(**{one.name: stored[one.name] for one in fields(Measured) if one.name in stored})


def of(attempts: Iterable[Attempt]) -> Measured:
    """Return the sums over attempts that have ended."""
    total = Measured()
    for attempt in attempts:
        if attempt.ended:
            total = total.plus(_of_one(attempt))
    return total


def new_steps(attempt: Attempt, step: int) -> int:
    """Return how many steps an attempt at `step` has done that no earlier attempt had."""
    marks = attempt.marks
    return max(0, step - max(marks.base, marks.first - 1)) if marks.first >= 0 else 0


def is_lost(attempt: Attempt) -> bool:
    """Return whether the attempt lost running hardware."""
    if attempt.reason is None or attempt.reason in _NOT_LOST or not attempt.started:
        return False
    return MEANINGS[attempt.reason].budget is Budget.HARDWARE and attempt.reason is not Reason.HANG


def _of_one(attempt: Attempt) -> Measured:
    marks = attempt.marks
    seconds: dict[Cause, float] = {}
    for span in of_attempt(attempt, attempt.ended):
        seconds[span.cause] = seconds.get(span.cause, 0.0) + span.length / 1000
    stepping = sum(seconds.get(cause, 0.0) for cause in (Cause.NEW, Cause.REPEATED, Cause.SAVING))
    again = sum(seconds.get(cause, 0.0) for cause in (Cause.STARTING, Cause.COMPILING, Cause.REPEATED))
    return Measured(
        steps=float(new_steps(attempt, attempt.step)),
        saves=float(marks.saves),
        saving=marks.saving,
        squares=marks.squares,
        stepping=stepping if marks.saves else 0.0,
        losses=float(is_lost(attempt)),
        running=max(0.0, attempt.ended - attempt.started) if attempt.started else 0.0,
        back=again if attempt.stage > 0 else 0.0,
    )
