"""Likely causes of a verdict, and their fixes. Pure.

Where the evidence fits several causes, only the nearest ones are named. Where it fits none, no cause is named.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise
from statistics import median

from tpukit.drill.comparing import FEW
from tpukit.drill.losses import DURING_SAVE, Again, Damage, Loss, What, When
from tpukit.drill.verdicts import Verdict, Word


class Cause(StrEnum):
    DATA_POSITION = "data position not saved"
    POSITION_FROZEN = "data position saved once and never again"
    AHEAD = "data position is ahead of the saved step"
    OFF_BY_ONE = "a batch too many or too few around the save"
    DATA_ORDER = "order of the data not saved"
    RNG = "random state not saved"
    OPTIMIZER = "optimizer state or learning rate not restored"
    NOT_ATOMIC = "save not atomic"
    NO_SAVE_ON_TERM = "no save when told to leave"
    LONG_INTERVAL = "save interval longer than the grace"
    RANK_0_SAVES = "rank 0 alone saves what each host has of its own"
    BARRIER = "barrier missing: hosts disagree on the newest checkpoint"
    STEP_COUNTER = "step counter counts attempts"
    NOTHING_SAVED = "nothing is saved"
    NOT_LOOKED_FOR = "saved checkpoints are not looked for"
    NOT_NEWEST = "the newest checkpoint is not the one that is restored"
    NO_CHECKSUM = "a spoilt checkpoint is read as if it were good"
    NO_FALLBACK = "no older checkpoint is tried"
    PARTLY_RESTORED = "some parameters are not restored"
    NOT_RESTORED = "parameters are not restored"
    PRECISION = "restored in lower precision"
    IGNORES_TERM = "SIGTERM is ignored"
    EXIT_0 = "exit code 0 after SIGTERM"
    UNFINISHED = "save unfinished at exit"
    OUTSIDE = "checkpoints are outside the workdir"


TEXT = {
    Cause.DATA_POSITION: "save the position of the data iterator with the state, and move it there on resume",
    Cause.POSITION_FROZEN: "read the position of the data again at every save: a resumed run saves the old one",
    Cause.AHEAD: "save the position after the batch that was trained on last, with the state of that step: a reader "
    "that prefetches is ahead of it, and a file of its own is newer",
    Cause.OFF_BY_ONE: "save after the step is counted and its batch was taken, or neither: they are one apart",
    Cause.DATA_ORDER: "save the shuffle's seed, epoch and buffer, not only a count of batches",
    Cause.RNG: "save the random keys (dropout, noise), or make them from the seed and the step",
    Cause.OPTIMIZER: "save the optimizer's state and its count, from which the rate is taken, and use what is restored",
    Cause.NOT_ATOMIC: "write to another name, sync, and rename when all is there; never write over the newest",
    Cause.NO_SAVE_ON_TERM: "save when SIGTERM comes (tpukit.host: leaving() and leave()): there is time for it",
    Cause.LONG_INTERVAL: "told to leave it trained on until it was killed: save when SIGTERM comes (tpukit.host: "
    "leaving() and leave()), or more often than every `max.grace`",
    Cause.RANK_0_SAVES: "let each host save its own data position and random keys, or gather them first",
    Cause.BARRIER: "let host 0 say which step is restored, after all hosts have written theirs",
    Cause.STEP_COUNTER: "take the step from the checkpoint alone; nothing may depend on the attempt",
    Cause.NOTHING_SAVED: "save below $TPUKIT_WORKDIR, which outlives the attempt",
    Cause.NOT_LOOKED_FOR: "look for the newest checkpoint in $TPUKIT_WORKDIR at every start, whatever the attempt",
    Cause.NOT_NEWEST: "restore the newest that is complete, not the best or the first",
    Cause.NO_CHECKSUM: "save a checksum with each file and compare it on restore",
    Cause.NO_FALLBACK: "retain two checkpoints, and take the older one when the newest cannot be read",
    Cause.PARTLY_RESTORED: "save and restore every parameter; the verdict names those that differ",
    Cause.NOT_RESTORED: "use the parameters of the checkpoint, not those that were initialised at the start",
    Cause.IGNORES_TERM: "save and leave when SIGTERM comes (tpukit.host: leaving() and leave())",
    Cause.EXIT_0: "exit with another code than 0 (tpukit.host: leave()), else the job counts as completed",
    Cause.UNFINISHED: "wait for the save to finish before the program ends (Orbax: wait_until_finished())",
    Cause.OUTSIDE: "save below $TPUKIT_WORKDIR: it is a folder of its own for each run, and no other run is spoilt",
    Cause.PRECISION: "save parameters and optimizer state in the precision in which they are trained",
}


def of_all(verdicts: Sequence[Verdict]) -> list[tuple[Cause, ...]]:
    """Name the causes for each verdict.

    A special loss gets the causes of a plain loss with the same verdict. A cause that one loss rules out is not named
    for another: if any resume trained on the right batches by their digests, the data is not at fault.
    """
    plain = {verdict.word: causes(verdict) for verdict in reversed(verdicts) if _is_plain(verdict.loss)}
    right_data = any(one.evidence.batches_equal for one in verdicts if _is_plain(one.loss))
    named = [plain.get(verdict.word) or causes(verdict) for verdict in verdicts]
    return [tuple(cause for cause in some if not (right_data and cause in OF_PLAIN_DATA)) for some in named]


OF_PLAIN_DATA = (Cause.DATA_POSITION, Cause.AHEAD, Cause.OFF_BY_ONE, Cause.DATA_ORDER)
"""Causes that a resume with the right batches rules out.

A data position that is saved only once shows in the second resume.
"""


def _is_plain(loss: Loss) -> bool:
    at_a_step = loss.what is What.KILL and loss.when is When.AT_STEP
    return at_a_step and loss.again is Again.NOTHING and loss.damage is Damage.NONE


def causes(verdict: Verdict) -> tuple[Cause, ...]:
    """Return the causes for a single loss, most likely first."""
    word, loss, evidence = verdict.word, verdict.loss, verdict.evidence
    if word in (Word.EXACT, Word.NOT_STRUCK, Word.CANNOT_TELL):
        return (Cause.OUTSIDE,) if word is Word.CANNOT_TELL and evidence.outside else ()
    if word is Word.UNREADABLE:
        return (Cause.NO_FALLBACK,) if loss.damage is not Damage.NONE else (Cause.NOT_ATOMIC, Cause.NO_FALLBACK)
    if evidence.are_apart:
        return (Cause.BARRIER,)
    if word is Word.NOT_BACK:
        return (Cause.EXIT_0,) if evidence.exited_0 and loss.what in (What.TERM, What.PREEMPT) else ()
    if word is Word.STARTS_OVER:
        if loss.when in DURING_SAVE or loss.damage is not Damage.NONE or loss.what is What.DISK_FULL:
            return (Cause.NOT_ATOMIC, Cause.NO_FALLBACK)
        return (Cause.NOT_LOOKED_FOR,) if evidence.saved >= 0 else (Cause.NOTHING_SAVED,)
    if word is Word.LOSES_MORE:
        return _of_steps_lost(verdict)
    if loss.damage is not Damage.NONE and not _fell_back(verdict):
        return (Cause.NO_CHECKSUM,)
    if evidence.counter is not None:
        return (Cause.STEP_COUNTER,)
    if _first_host_is_right(verdict):
        return (Cause.RANK_0_SAVES,)
    if evidence.first_resume_equal:
        return (Cause.POSITION_FROZEN,)
    if evidence.shift and evidence.shift.by:
        return (_of_shift(evidence.shift.by),)
    return _of_values(verdict)


def _of_shift(by: int) -> Cause:
    if abs(by) == 1:
        return Cause.OFF_BY_ONE
    return Cause.DATA_POSITION if by > 0 else Cause.AHEAD


def _of_steps_lost(verdict: Verdict) -> tuple[Cause, ...]:
    loss, evidence = verdict.loss, verdict.evidence
    older = verdict.resumed_at is not None and verdict.resumed_at < evidence.saved
    if older or loss.what not in (What.TERM, What.PREEMPT):
        return (Cause.NOT_NEWEST,)
    if evidence.ignored_term:
        return (Cause.IGNORES_TERM,)
    if evidence.unfinished:
        return (Cause.UNFINISHED,)
    return (Cause.LONG_INTERVAL,) if evidence.trained_on else (Cause.NO_SAVE_ON_TERM,)


def _first_host_is_right(verdict: Verdict) -> bool:
    """Return whether host 0 makes its first step as in the unbroken run and another host does not.

    Later steps are no evidence, because hosts share what they learn.
    """
    different, resumed = verdict.evidence.different, verdict.resumed_at
    return different.get(0, -1) != resumed and any(at == resumed for host, at in different.items() if host)


def _fell_back(verdict: Verdict) -> bool:
    """Return whether the run resumed from a checkpoint older than the damaged one."""
    resumed, saved = verdict.resumed_at, verdict.evidence.saved
    return resumed is not None and saved >= 0 and resumed <= saved + 1


def _of_values(verdict: Verdict) -> tuple[Cause, ...]:
    """Name a cause where the values leave only one.

    Equal first losses mean the right parameters and the right data. A first loss that differs has many causes, of which
    only evidence selects one.
    """
    evidence = verdict.evidence
    if evidence.not_restored:
        if evidence.restored:
            return (Cause.PARTLY_RESTORED,)
        return (Cause.PRECISION,) if evidence.difference < PRECISION_MOST else (Cause.NOT_RESTORED,)
    if evidence.batches_known and not evidence.batches_equal:
        return (Cause.DATA_ORDER,)
    at, resumed = evidence.first_different, verdict.resumed_at
    if at is None or resumed is None or not evidence.largest:
        return ()
    if at > resumed:
        return (Cause.OPTIMIZER,)
    same_data = evidence.batches_equal or (evidence.shift is not None and evidence.shift.by == 0)
    if not same_data or evidence.largest < OTHER_NUMBERS_LEAST * evidence.neighbours:
        return ()
    if evidence.restored or _is_scatter(evidence.excess):
        return (Cause.RNG,)
    return (Cause.NOT_RESTORED,) if _is_jump(evidence.excess, evidence.learnt) else ()


PRECISION_MOST = 0.01
"""Upper bound on the relative difference of a loss that rounding parameters to 8 bits of mantissa causes."""
OTHER_NUMBERS_LEAST = 0.05
"""Least effect of other random numbers or parameters on a loss, as a share of the difference between consecutive steps.

Rounding has a smaller effect.
"""
EARLY = 8
"""Number of losses directly after a resume that are examined."""
CHANGES_LEAST = 0.35
"""Least share of steps at which independent differences change their sign: half of them do on average."""
LASTING = 0.4
"""Least size of later differences, as a share of the first ones, for random numbers that differ at every step."""
UNTRAINED_LEAST = 0.5
"""Least excess of an untrained model's loss, as a share of what was learnt before the resume."""


def _is_scatter(excess: Sequence[float]) -> bool:
    """Return whether losses scatter around the right ones, as with other random numbers.

    Parameters that are slightly wrong also miss on both sides, but for several steps on the same side, or ever less.
    """
    known = [one for one in excess if math.isfinite(one)]
    above = sum(1 for one in known[:EARLY] if one > 0)
    if len(known) < EARLY or not 2 <= above <= EARLY - 2:
        return False
    changes = sum(1 for one, other in pairwise(known) if (one > 0) != (other > 0))
    half = len(known) // 2
    lasts = median(map(abs, known[half:])) >= LASTING * median(map(abs, known[:half]))
    return lasts and changes >= CHANGES_LEAST * (len(known) - 1)


def _is_jump(excess: Sequence[float], learnt: float) -> bool:
    """Return whether losses start as high as an untrained model's and fall, as when it is trained a second time."""
    first = [one for one in excess[:EARLY] if math.isfinite(one)]
    later = [one for one in excess[-EARLY:] if math.isfinite(one)]
    untrained = bool(first) and median(first[:FEW]) >= UNTRAINED_LEAST * learnt
    return len(first) == EARLY and min(first) > 0 and sum(later) < sum(first) / 2 and untrained
