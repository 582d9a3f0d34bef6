"""Faults that the unbroken run shows. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tpukit.drill.advice import Cause
from tpukit.drill.saves import Save
from tpukit.drill.trace import Trace, printed_every
from tpukit.drill.verdicts import Word


@dataclass(frozen=True, slots=True)
class Finding:
    word: Word
    text: str
    cause: Cause


def of_unbroken(trace: Trace, saves: Sequence[Save]) -> tuple[Finding, ...]:
    """Return the faults that a run shows by itself, from its first step and its last save."""
    found: list[Finding] = []
    steps = sorted({report.step for report in trace})
    if steps and steps[0] > max(1, printed_every(steps)):
        text = f"a fresh run began at step {steps[0]}: it restored something that is not in its workdir"
        found.append(Finding(Word.CANNOT_TELL, text, Cause.OUTSIDE))
    if saves and not saves[-1].done:
        text = f"the last save, at step {saves[-1].step}, was never finished: wait for it before the program ends"
        found.append(Finding(Word.LOSES_MORE, text, Cause.UNFINISHED))
    return tuple(found)
