"""Verdict on a loss, in one word and with its numbers: the output of `judging` and the input of `advice`. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from enum import StrEnum

from tpukit.drill.comparing import Evidence
from tpukit.drill.losses import Loss, Struck
from tpukit.drill.saves import Save
from tpukit.drill.trace import Trace


class Word(StrEnum):
    """Verdicts from the best to the worst."""

    EXACT = "exact"
    NOT_STRUCK = "did not happen"
    CANNOT_TELL = "cannot tell"
    DIVERGES = "diverges"
    SKIPS = "skips batches"
    REPEATS = "repeats batches"
    LOSES_MORE = "loses more than it should"
    STARTS_OVER = "starts over"
    UNREADABLE = "leaves a checkpoint that cannot be read"
    NOT_BACK = "does not come back"


ORDER = list(Word)


@dataclass(frozen=True, slots=True)
class Ended:
    """End of a run, as far as the verdict depends on it."""

    completed: bool
    message: str
    failures: tuple[bool, ...]  # for each attempt: the program failed by itself


@dataclass(frozen=True, slots=True)
class Broken:
    """Run with a loss."""

    loss: Loss
    trace: Trace
    ended: Ended
    struck: tuple[Struck, ...]
    saves: tuple[Save, ...] = ()
    given_up: str = ""
    damaged: str = ""
    outside: tuple[str, ...] | None = None  # the workdir has no save: folders elsewhere with written files


@dataclass(frozen=True, slots=True)
class Verdict:
    loss: Loss
    word: Word
    text: str
    lost_at: int | None = None
    resumed_at: int | None = None
    steps_lost: int | None = None
    back_seconds: float | None = None
    evidence: Evidence = field(default_factory=lambda: Evidence({}))


Said = tuple[Word, str]
"""A word and the sentence that explains it."""


def worst(words: Iterable[Word]) -> Word | None:
    """Return the worst word. Losses that did not happen count only if none did."""
    words = list(words)
    return max([word for word in words if word is not Word.NOT_STRUCK] or words, key=ORDER.index, default=None)
