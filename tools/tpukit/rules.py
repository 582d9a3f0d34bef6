"""What follows when an attempt ends: history and a rule in, an action with its reason out. Pure.

The table is the policy for lost hardware; the user's restart budget pays for everything else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import takewhile

from tpukit.reasons import MEANINGS, Budget, Lost, Reason, State, message
from tpukit.records import Attempt


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
"""How many attempts in a row may be lost without a new saved step. A program that dies so often before it saves
would otherwise go on for ever, as nobody's budget pays for it."""

UNSEEN_SECONDS = 600.0
"""An attempt of which neither steps nor saves can be seen and that ran for so long did not die before it saved."""

SAY_PROGRESS = "print lines such as `step 12 loss 3.4`, or say under `progress:` in the job file how its lines look"
"""What to do about a program that shows no steps."""

BACKOFF_SECONDS = 1.0
BACKOFF_MOST = 60.0
CAPACITY_BACKOFF_MOST = 900.0
"""A zone that has run out stays so for a while, and each request is an attempt in the record."""


@dataclass(frozen=True, slots=True)
class Verdict:
    action: Action
    state: State  # of the job from now on
    reason: Reason | None
    message: str
    not_before: float = 0.0


def decide(attempts: Sequence[Attempt], rule: str, restarts: int, *, begun: bool = False) -> Verdict:
    """Return what follows the last of `attempts`, which has ended. `restarts` is the user's budget.

    `begun`: the place has begun the next attempt by itself, from the last checkpoint. Where the user allows restarts it
    goes on, whatever the rule says about lost hardware: stopping it would lose work.
    """
    last = attempts[-1]
    assert last.reason is not None
    meaning = MEANINGS[last.reason]
    said = message(last.reason, last.host) + (f": {last.detail}" if last.detail else "")
    said += f"; but {last.warning}" if last.warning else ""
    asked = max((index for index, attempt in enumerate(attempts) if attempt.asked), default=0)

    if meaning.budget is Budget.NONE:
        return Verdict(Action.NOTHING, meaning.state, last.reason, said)

    if meaning.budget is Budget.USER:
        spent = sum(1 for attempt in attempts[asked:-1] if _budget(attempt) is Budget.USER)
        if spent >= restarts:
            why = f" ({spent} of {restarts} restarts used)" if restarts else ""
            return Verdict(Action.NOTHING, meaning.state, last.reason, said + why)
        not_before = last.ended + _backoff(spent)
        return Verdict(
            Action.RESUME, State.PENDING, last.reason, f"{said}; restart {spent + 1} of {restarts}", not_before
        )

    if last.reason is Reason.EVICTED:  # the queue took it out, and the queue brings it back
        return Verdict(Action.RESUME, State.PENDING, last.reason, f"{said}; it resumes when its turn comes", last.ended)
    action = RULES[rule][meaning.lost] if meaning.lost else Action.RESUME
    if begun and restarts and action in (Action.NOTHING, Action.RERUN):
        action = Action.RESUME
    if action is Action.NOTHING:
        return Verdict(action, meaning.state, last.reason, f"{said}; rule {rule} does nothing about it")
    lost = _attempts_without_progress(attempts, asked)
    if lost >= ATTEMPTS_WITHOUT_PROGRESS:
        why = f"; given up after {lost} attempts in a row that saved nothing"
        if last.saved < 0 and all(attempt.step < 0 for attempt in attempts[asked:]):
            why += f" that could be seen: {SAY_PROGRESS}"
        return Verdict(Action.NOTHING, meaning.state, last.reason, said + why)
    wait = 0.0 if lost < 2 else _backoff(lost - 2)
    if last.reason is Reason.NO_CAPACITY:
        refused = len(list(takewhile(lambda one: one.reason is Reason.NO_CAPACITY, reversed(attempts[asked:]))))
        wait = max(wait, _backoff(refused + 2, CAPACITY_BACKOFF_MOST))
    what = f"{action} by rule {rule}" if meaning.lost else "it is tried again with another one"
    if begun and meaning.lost:
        what = "its place has resumed it"
    return Verdict(action, State.PENDING, last.reason, f"{said}; {what}", last.ended + wait)


def following(attempts: Sequence[Attempt], action: Action, *, asked: bool = False) -> Attempt:
    """The attempt that `action` makes."""
    number = len(attempts)
    if not attempts or action is Action.RERUN:
        return Attempt(number, stage=0, origin=number, asked=asked)
    last = attempts[-1]
    return Attempt(number, stage=last.stage + 1, origin=last.origin, asked=asked, saved=last.saved, action=str(action))


def _backoff(failures: int, most: float = BACKOFF_MOST) -> float:
    doublings = min(failures, 16)  # more are past the bound, and a thousand are more than a float holds
    return min(BACKOFF_SECONDS * 2.0**doublings, most)


def _budget(attempt: Attempt) -> Budget:
    return MEANINGS[attempt.reason].budget if attempt.reason else Budget.NONE


def _attempts_without_progress(attempts: Sequence[Attempt], first: int) -> int:
    """Trailing attempts from the `first` on that hardware took away and that saved nothing new."""
    count = 0
    for index in range(len(attempts) - 1, first - 1, -1):
        attempt = attempts[index]
        before = attempts[index - 1] if index and attempts[index - 1].origin == attempt.origin else None
        if _budget(attempt) is not Budget.HARDWARE or _made_progress(attempt, before, attempts[:index]):
            break
        # An hour in the queue is not an hour lost, nor is a request that Google could not serve: no program ran.
        count += attempt.reason not in (Reason.EVICTED, Reason.NO_CAPACITY)
    return count


def _made_progress(attempt: Attempt, before: Attempt | None, earlier: Sequence[Attempt]) -> bool:
    """It saved, or it came further than any before it, or it ran for long while nothing of it could be seen."""
    if attempt.saved > (before.saved if before else -1):
        return True
    if attempt.step < 0 and attempt.saved < 0:
        return attempt.started > 0 and attempt.ended - attempt.started >= UNSEEN_SECONDS
    return before is not None and attempt.step > max(one.step for one in earlier if one.origin == attempt.origin)
