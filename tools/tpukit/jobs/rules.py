"""Decide what follows when an attempt ends, from its history and the job's rule. Pure.

The table is the policy for lost hardware; the user's restart budget pays for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from tpukit.core import retry
from tpukit.jobs import history
from tpukit.jobs.reasons import MEANINGS, Budget, Lost, Reason, State, message
from tpukit.jobs.records import Attempt, Folded


class Action(StrEnum):
    NOTHING = "nothing"
    RESUME = "resume"  # a new attempt from the last checkpoint
    RERUN = "rerun"  # a new attempt from the beginning
    REAPPLY = "reapply"  # delete and recreate the TPU, then resume


RULES: dict[str, dict[Lost, Action]] = {
    "pass": {Lost.HOST: Action.NOTHING, Lost.PEER: Action.NOTHING},
    "resume": {Lost.HOST: Action.NOTHING, Lost.PEER: Action.RESUME},
    "rerun": {Lost.HOST: Action.REAPPLY, Lost.PEER: Action.RERUN},
    "reapply": {Lost.HOST: Action.REAPPLY, Lost.PEER: Action.REAPPLY},
    "pre": {Lost.HOST: Action.REAPPLY, Lost.PEER: Action.RESUME},
}

ATTEMPTS_WITHOUT_PROGRESS = 10
"""Most attempts in a row that may be lost without a new saved step.

Otherwise a program that always dies before it saves would restart forever, as no budget pays for it.
"""

SAY_PROGRESS = "print lines such as `step 12 loss 3.4`, or describe its lines under `progress:` in the job file"
"""Advice for a program that shows no steps."""

BACKOFF_SECONDS = 1.0
BACKOFF_MOST = 60.0
CAPACITY_BACKOFF_MOST = 900.0
"""Longest delay without capacity: shortages last, and each request is an attempt in the record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    action: Action
    state: State  # the job's next state
    reason: Reason | None
    message: str
    not_before: float = 0.0


def decide(
    attempts: Sequence[Attempt], rule: str, restarts: int, folded: Folded | None = None, *, begun: bool = False
) -> Verdict:
    """Decide what follows the last of `attempts`, which has ended.

    `restarts` is the user's budget; `folded` are the earlier attempts. `begun`: the place has started the next attempt
    by itself, from the last checkpoint. If the user allows restarts it continues, whatever the rule says about lost
    hardware, because stopping it would lose work.
    """
    last = attempts[-1]
    assert last.reason is not None
    meaning = MEANINGS[last.reason]
    said = message(last.reason, last.host) + (f": {last.detail}" if last.detail else "")
    said += f"; but {last.warning}" if last.warning else ""
    past = history.fold(folded, attempts)

    if meaning.budget is Budget.NONE:
        return Verdict(Action.NOTHING, meaning.state, last.reason, said)

    if meaning.budget is Budget.USER:
        spent = history.restarts(past) - 1  # without the last
        if spent >= restarts:
            why = f" ({spent} of {restarts} restarts used)" if restarts else ""
            return Verdict(Action.NOTHING, meaning.state, last.reason, said + why)
        not_before = last.ended + _backoff(spent)
        return Verdict(
            Action.RESUME, State.PENDING, last.reason, f"{said}; restart {spent + 1} of {restarts}", not_before
        )

    if last.reason is Reason.EVICTED:  # the queue took it out, and the queue brings it back
        return Verdict(
            Action.RESUME, State.PENDING, last.reason, f"{said}; the job resumes when the queue admits it", last.ended
        )
    action = RULES[rule][meaning.lost] if meaning.lost else Action.RESUME
    if begun and restarts and action in (Action.NOTHING, Action.RERUN):
        action = Action.RESUME
    if action is Action.NOTHING:
        return Verdict(action, meaning.state, last.reason, f"{said}; rule {rule} does not restart the job")
    lost = past.lost
    if lost >= ATTEMPTS_WITHOUT_PROGRESS:
        why = f"; stopped after {lost} attempts in a row that saved nothing"
        if last.saved < 0 and not past.shown:
            why += f" that tpukit could see: {SAY_PROGRESS}"
        return Verdict(Action.NOTHING, meaning.state, last.reason, said + why)
    wait = 0.0 if lost < 2 else _backoff(lost - 2)
    if last.reason is Reason.NO_CAPACITY:
        wait = max(wait, _backoff(past.refused + 2, CAPACITY_BACKOFF_MOST))
    what = f"{action} by rule {rule}" if meaning.lost else "the job is retried with another port"
    if begun and meaning.lost:
        what = "the place has resumed the job"
    return Verdict(action, State.PENDING, last.reason, f"{said}; {what}", last.ended + wait)


def following(attempts: Sequence[Attempt], action: Action, *, asked: bool = False) -> Attempt:
    """Return the attempt that `action` makes."""
    number = history.number_after(attempts)
    if not attempts or action is Action.RERUN:
        return Attempt(number, stage=0, origin=number, asked=asked)
    last = attempts[-1]
    return Attempt(number, stage=last.stage + 1, origin=last.origin, asked=asked, saved=last.saved, action=str(action))


def _backoff(failures: int, most: float = BACKOFF_MOST) -> float:
    return retry.growing(failures + 1, BACKOFF_SECONDS, most)
