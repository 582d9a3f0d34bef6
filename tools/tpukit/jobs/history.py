"""Keep a job's history within bounds: fold old attempts into counts, cut texts and learned data. Pure.

A spot job may be preempted thousands of times, and its record is one document. `rules` decides the same from a `Folded`
and the attempts after it as from all attempts, because it reads both through the same counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace

from tpukit.goodput import measures, sums
from tpukit.goodput.causes import of_attempt
from tpukit.jobs.reasons import MEANINGS, Budget, Reason
from tpukit.jobs.records import Attempt, Folded, Job

ATTEMPTS_KEPT = 12
"""Most attempts that a record holds in full."""
EARLIER_BYTES = 64 * 1024
"""Most bytes of attempts before the last one. Large attempts reduce the number kept."""
LEARNED_BYTES = 48 * 1024
"""Most bytes that a place may remember of one attempt."""
DETAIL_BYTES = 2_000
HOST_BYTES = 300
MESSAGE_BYTES = 4_000
UNSEEN_SECONDS = 600.0
"""Running time after which an attempt without visible steps or saves counts as progress."""

_CUT = " …"
_CONTROL = dict.fromkeys((*range(9), *range(11, 32), 127), "?")  # JSON writes six characters for each of these


def cut(text: str, most: int) -> str:
    """Return `text` in at most `most` bytes, without control characters except tab and newline."""
    text = text.translate(_CONTROL)
    data = text.encode("utf-8", "replace")
    if len(data) <= most:
        return data.decode()
    return data[: most - len(_CUT.encode())].decode(errors="ignore") + _CUT


def learned(before: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Merge `new` into `before`. Drop the largest fields when the result is too large."""
    merged = {**before, **new}
    if merged == before or _size(merged) <= LEARNED_BYTES:
        return merged
    kept: dict[str, Any] = {}
    room = LEARNED_BYTES
    for name, value in sorted(merged.items(), key=lambda item: (_size(item[1]), item[0])):
        room -= _size({name: value})
        if room < 0:
            break
        kept[name] = value
    return kept


def bounded(job: Job) -> Job:
    """Return the record with its texts cut; the same record where no text is too long."""
    changed: dict[str, Any] = {}
    if (message := cut(job.message, MESSAGE_BYTES)) != job.message:
        changed["message"] = message
    if job.outcome and (message := cut(job.outcome.message, MESSAGE_BYTES)) != job.outcome.message:
        changed["outcome"] = replace(job.outcome, message=message)
    if job.attempts and (last := _bounded(job.attempts[-1])) != job.attempts[-1]:
        changed["attempts"] = (*job.attempts[:-1], last)
    return replace(job, **changed) if changed else job


def _bounded(attempt: Attempt) -> Attempt:
    return replace(
        attempt,
        host=cut(attempt.host, HOST_BYTES),
        detail=cut(attempt.detail, DETAIL_BYTES),
        warning=cut(attempt.warning, DETAIL_BYTES),
    )


def compacted(job: Job) -> Job:
    """Fold all but the last attempts, so that the record does not grow with their number."""
    attempts = [*map(_bounded, job.attempts[:-1]), *job.attempts[-1:]]
    if not attempts:
        return job
    keep = len(attempts) - 1  # index of the first attempt that stays
    room = EARLIER_BYTES - sum(map(_size, _kept(job.folded, attempts[:-1])))
    while keep > 0 and len(attempts) - keep < ATTEMPTS_KEPT and (room := room - _size(attempts[keep - 1])) >= 0:
        keep -= 1
    if keep == 0:
        return replace(job, attempts=tuple(attempts)) if tuple(attempts) != job.attempts else job
    folded = fold(job.folded, attempts[:keep])
    for attempt in attempts[:keep]:
        folded = sums.folded(folded, of_attempt(attempt, attempt.ended), measures.of([attempt]))
    return replace(job, folded=folded, attempts=tuple(attempts[keep:]))


def fold(before: Folded | None, attempts: Iterable[Attempt]) -> Folded:
    """Return the counts of the attempts folded before and of those that follow."""
    folded = before or Folded()
    for attempt in attempts:
        folded = _with(folded, attempt)
    return folded


def restarts(folded: Folded) -> int:
    """Return the number of ends charged to the user's budget since a person last asked for an attempt."""
    return sum(count for reason, count in folded.reasons.items() if budget_of(reason) is Budget.USER)


def number_after(attempts: Sequence[Attempt]) -> int:
    """Return the number of the next attempt."""
    return attempts[-1].number + 1 if attempts else 0


def _with(before: Folded, attempt: Attempt) -> Folded:
    same = before.count > 0 and before.origin == attempt.origin
    if attempt.asked:  # budgets restart at zero
        before = replace(before, reasons={}, lost=0, refused=0, shown=False)
    lost = 0
    if _budget(attempt) is Budget.HARDWARE and not _made_progress(attempt, before if same else None):
        # Time in the queue and a request that Google could not serve are no losses: no program ran.
        lost = before.lost + (attempt.reason not in (Reason.EVICTED, Reason.NO_CAPACITY))
    reasons = dict(before.reasons)
    if attempt.reason:
        reasons[str(attempt.reason)] = reasons.get(str(attempt.reason), 0) + 1
    return Folded(
        count=before.count + 1,
        reasons=reasons,
        lost=lost,
        refused=before.refused + 1 if attempt.reason is Reason.NO_CAPACITY else 0,
        shown=before.shown or attempt.step >= 0,
        origin=attempt.origin,
        saved=attempt.saved,
        furthest=max(before.furthest, attempt.step) if same else attempt.step,
        kept=_kept(before, [attempt]),
        spent=before.spent,
        measured=before.measured,
    )


def _kept(before: Folded | None, attempts: Sequence[Attempt]) -> tuple[Attempt, ...]:
    """Return the first attempt of all, and the last one for which its place learned something."""
    every = [*(before.kept if before else ()), *attempts]
    first = [replace(one, learned={}) for one in every[:1]]
    learned_of = [one for one in every if one.learned][-1:]
    return (*first, *learned_of)


def _made_progress(attempt: Attempt, before: Folded | None) -> bool:
    """Report whether the attempt saved, got further than any before it, or ran long without being visible."""
    if attempt.saved > (before.saved if before else -1):
        return True
    if attempt.step < 0 and attempt.saved < 0:
        return attempt.started > 0 and attempt.ended - attempt.started >= UNSEEN_SECONDS
    return before is not None and attempt.step > before.furthest


def _budget(attempt: Attempt) -> Budget:
    return MEANINGS[attempt.reason].budget if attempt.reason else Budget.NONE


def budget_of(reason: str) -> Budget:
    """Return the budget that pays. A reason of a newer version costs the user nothing."""
    return next((meaning.budget for known, meaning in MEANINGS.items() if known == reason), Budget.NONE)


def _size(value: Any) -> int:
    return len(msgspec.json.encode(value))
