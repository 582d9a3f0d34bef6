"""Losses that a drill can inject: kind, moment, and name."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class What(StrEnum):
    KILL = "kill"  # signal 9, as when a machine loses power
    TERM = "term"  # SIGTERM to one host, the job's grace, then signal 9
    PREEMPT = "preempt"  # SIGTERM to all hosts of a slice, which is then taken away
    HANG = "hang"  # the process stops without a report
    DISK_FULL = "disk full"  # writes fail part-way through a file


class When(StrEnum):
    AT_STEP = "at a step"
    SAVE_BEGINS = "as a save begins"
    SAVE_HALF = "half-way through a save"
    SAVE_ENDS = "near the end of a save"
    SAVED = "just after a save"


class Again(StrEnum):
    """Event in the attempt that follows the loss."""

    NOTHING = "nothing"
    SAME_STEP = "lost once more at the same step"
    STARTING = "lost once more before its first step"
    SAVED = "lost once more after it has saved"


class Damage(StrEnum):
    """Damage to the newest checkpoint between the loss and the next attempt."""

    NONE = "none"
    CORRUPT = "bytes of the newest checkpoint are overwritten"
    TRUNCATE = "the newest checkpoint is cut in half"


DURING_SAVE = (When.SAVE_BEGINS, When.SAVE_HALF, When.SAVE_ENDS)


@dataclass(frozen=True, slots=True)
class Loss:
    name: str  # value for --only
    what: What
    hosts: tuple[tuple[int, int], ...]  # (slice, host in it)
    when: When = When.AT_STEP
    step: int = 0  # not before this step was reported
    again: Again = Again.NOTHING
    damage: Damage = Damage.NONE

    def __str__(self) -> str:
        names = " and ".join(f"{slice_}-{index}" for slice_, index in self.hosts)
        one = len(self.hosts) == 1
        who = f"host {names} is" if one else f"hosts {names} are"
        what = {
            What.KILL: f"{who} killed",
            What.TERM: f"{who} told to leave",
            What.PREEMPT: f"{who} preempted",
            What.HANG: f"{who} stopped",
            What.DISK_FULL: f"{who} left with a full disk",
        }[self.what]
        when = f"at step {self.step}" if self.when is When.AT_STEP else f"{self.when} after step {self.step}"
        more = [f"the next attempt is {self.again}"] if self.again is not Again.NOTHING else []
        more += [f"then {self.damage}"] if self.damage is not Damage.NONE else []
        return "; ".join([f"{what} {when}", *more])


@dataclass(frozen=True, slots=True)
class Struck:
    attempt: int
    step: int  # last step that any host had reported
    at: float  # on the clock of the reports
    saved: int  # step of the newest finished save; -1: none
    saving: int = -1  # step of the save in progress; -1: none
    named: bool = False  # the save's files name its step, which is otherwise inferred from when they came
