"""What a loss did to a run, in one word and with its numbers: the unbroken run and the broken one in, a verdict out.

Pure. Two runs of a program that is not repeatable differ before anything was lost: by so much, the noise, they may
differ afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from tpukit.drill import offsets
from tpukit.drill.losses import DURING_SAVE, Again, Damage, Loss, Struck, What, When
from tpukit.drill.offsets import Shift, apart
from tpukit.drill.saves import Save
from tpukit.drill.trace import Report, Trace, by_step, hosts
from tpukit.quantities import counted

NOISE_FACTOR = 8.0
"""How many times the noise a difference must be to count."""
STEPS_IN_FLIGHT = 2
"""Steps that a program may lose that was given the time to save: those under way when it was told to leave."""


class Word(StrEnum):
    """From the best to the worst."""

    EXACT = "exact"
    NOT_STRUCK = "did not happen"
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
    """How a run ended, as far as it is judged by."""

    completed: bool
    message: str
    failures: tuple[bool, ...]  # for each attempt: whether the program failed by itself


@dataclass(frozen=True, slots=True)
class Broken:
    """A run with a loss."""

    loss: Loss
    trace: Trace
    ended: Ended
    struck: tuple[Struck, ...]
    saves: tuple[Save, ...] = ()
    given_up: str = ""
    damaged: str = ""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What the advice is drawn from."""

    resumed: Mapping[int, int]  # host -> first step after the last loss
    different: Mapping[int, int] = field(default_factory=dict)  # host -> first step that is not as unbroken
    first_different: int | None = None  # of all hosts
    difference: float = 0.0  # at that step, as a share
    largest: float = 0.0
    shift: Shift | None = None
    counter: int | None = None  # steps are numbered so far off; the values are those of the unbroken run
    batches_known: bool = False
    batches_equal: bool = False
    saved: int = -1
    first_resume_equal: bool | None = None  # of a run with two losses
    trained_on: bool = False  # told to leave, it made steps through most of the grace


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


def noise(unbroken: Trace, runs: Iterable[Broken]) -> float:
    """By how much reports of the same step differ before anything was lost."""
    most = 0.0
    for run in runs:
        first = run.struck[0].attempt if run.struck else 0
        for host in hosts(unbroken):
            reference, before = by_step(unbroken, host), by_step(run.trace, host, first)
            for step in reference.keys() & before.keys():
                one, other = reference[step].loss, before[step].loss
                if one is not None and other is not None:
                    most = max(most, apart(one, other))
    return most


@dataclass(frozen=True, slots=True)
class _Case:
    """Everything that the rules below look at."""

    run: Broken
    first: int  # step of the unbroken run
    last: int
    end: int  # the last step of the broken run
    reached: int  # the last step before the loss
    resumed_at: int
    steps_lost: int
    saved: int
    noise: float
    saving_seconds: float
    grace: float
    evidence: Evidence


Finding = tuple[Word, str]


def judge(
    unbroken: Trace, run: Broken, noise: float = 0.0, saving_seconds: float = 0.0, grace: float = 30.0
) -> Verdict:
    """Of one loss. `saving_seconds`: what a save takes; `grace`: seconds between being told to leave and the kill."""
    loss = run.loss
    if not run.struck:
        return Verdict(loss, Word.NOT_STRUCK, "the run was over before it could be struck")
    struck = run.struck[-1]
    later = [report for report in run.trace if report.attempt > struck.attempt]
    lost_at = max(one.step for one in run.struck)
    saved = _saved(run)
    if not later and loss.what is What.DISK_FULL and run.ended.completed:
        return Verdict(loss, Word.EXACT, "it went on with a disk that was full", lost_at, None, 0)
    if not happened(unbroken, run):
        return Verdict(loss, Word.NOT_STRUCK, "it was struck after its last step, and had nothing left to do", lost_at)
    if not later:
        word, text = _not_back(run)
        return Verdict(loss, word, text, lost_at, evidence=Evidence({}, saved=saved))
    resumed = {host: min(one.step for one in later if one.host == host) for host in hosts(later)}
    resumed_at = min(resumed.values())
    first = min((report.step for report in unbroken), default=0)
    reached = max((one.step for one in run.trace if one.attempt <= struck.attempt), default=first - 1)
    case = _Case(
        run,
        first,
        max((report.step for report in unbroken), default=0),
        max(report.step for report in later),
        reached,
        resumed_at,
        max(0, reached - resumed_at + 1),
        saved,
        noise,
        saving_seconds,
        grace,
        replace(
            _compare(unbroken, run, resumed, NOISE_FACTOR * noise, saved), trained_on=_trained_on(run, struck, grace)
        ),
    )
    rules = (_incomplete, _starts_over, _apart_hosts, _older_save, _data, _values, _unsaved_on_term)
    word, text = next((found for rule in rules if (found := rule(case))), None) or _exact(case)
    return Verdict(loss, word, text, lost_at, resumed_at, case.steps_lost, _back(run), case.evidence)


def _incomplete(case: _Case) -> Finding | None:
    run, end, counted = case.run, case.end, abs(case.evidence.counter or 0)
    if run.given_up or not run.ended.completed:
        why = run.given_up or run.ended.message
        return Word.NOT_BACK, f"it resumed at step {case.resumed_at} and ended at {end}: {why}"
    if end < case.last - counted:
        return Word.NOT_BACK, f"it ended well at step {end}; the unbroken run ended at {case.last}"
    return None


def _starts_over(case: _Case) -> Finding | None:
    if case.resumed_at > case.first:
        return None
    if case.saved > case.first:
        return Word.STARTS_OVER, f"it began again at step {case.resumed_at}, although step {case.saved} was saved"
    nothing = not case.run.saves and case.saved < 0
    if nothing and case.run.loss.when is When.AT_STEP and case.reached > case.first:
        return Word.STARTS_OVER, f"it began again at step {case.resumed_at}: nothing was saved"
    return None


def _apart_hosts(case: _Case) -> Finding | None:
    resumed = case.evidence.resumed
    if len(set(resumed.values())) < 2:
        return None
    each = ", ".join(f"host {host} at {step}" for host, step in sorted(resumed.items()))
    return Word.DIVERGES, f"its hosts went on from different steps: {each}"


def _older_save(case: _Case) -> Finding | None:
    """Where no name says which step was saved, it was guessed from when the files came: one step either way."""
    sure = case.run.struck[0].named or any(one.saved >= 0 for one in case.run.trace)
    if case.saved < 0 or case.resumed_at >= case.saved - (0 if sure else 1):
        return None
    return Word.LOSES_MORE, f"step {case.saved} was saved, and it went on from step {case.resumed_at}"


def _data(case: _Case) -> Finding | None:
    evidence, resumed_at = case.evidence, case.resumed_at
    shift = evidence.shift
    if evidence.counter is not None or evidence.first_different is None or shift is None or not shift.by:
        return None
    by = shift.by
    sure = "" if shift.fit == 1.0 else f" (by the shape of the loss, fit {shift.fit:.2f})"
    if by > 0:
        begin, end = resumed_at - by, resumed_at - 1
        text = f"step {resumed_at} had the batch of step {begin}: batches {begin} to {end} came again{sure}"
        return Word.REPEATS, text
    skipped = counted(-by, "batch was", "batches were")
    return Word.SKIPS, f"step {resumed_at} had the batch of step {resumed_at - by}: {skipped} skipped{sure}"


def _values(case: _Case) -> Finding | None:
    evidence = case.evidence
    if evidence.counter is not None:
        return (
            Word.DIVERGES,
            f"its losses are those of the unbroken run, {counted(abs(evidence.counter), 'step')} apart",
        )
    if evidence.first_different is None:
        return None
    size = f", by {evidence.difference:.2g} of the loss there and {evidence.largest:.2g} at most"
    what = size if evidence.largest else " in its batches or parameters; the losses are equal"
    return Word.DIVERGES, f"it differs from step {evidence.first_different} on{what}"


def _unsaved_on_term(case: _Case) -> Finding | None:
    told = case.run.loss.what in (What.TERM, What.PREEMPT)
    if not told or case.steps_lost <= STEPS_IN_FLIGHT or case.saving_seconds >= case.grace:
        return None
    time = f"it had {case.grace:.0f} s to save and a save takes {case.saving_seconds:.1f}"
    if case.evidence.trained_on:
        time += ": it trained on, and was killed before its next save"
    return Word.LOSES_MORE, f"{counted(case.steps_lost, 'step was', 'steps were')} lost, although {time}"


def _exact(case: _Case) -> Finding:
    same = f"as unbroken, within the noise of {case.noise:.1g}" if case.noise else "the same as unbroken"
    return Word.EXACT, f"every step from {case.resumed_at} to {case.end} is {same}"


def worst(verdicts: Sequence[Verdict]) -> Word | None:
    """One word for all: of those that happened, where any did."""
    words = [one.word for one in verdicts]
    return max([word for word in words if word is not Word.NOT_STRUCK] or words, key=ORDER.index, default=None)


def _not_back(run: Broken) -> Finding:
    loss = run.loss
    why = run.given_up or run.ended.message or "no further step was reported"
    spoilt = loss.when in DURING_SAVE or loss.what is What.DISK_FULL or loss.damage is not Damage.NONE
    # An attempt that the drill ended for its silence did not fail on what it read: it may have been slow to start.
    failed = not run.given_up and any(run.ended.failures[run.struck[-1].attempt + 1 :])
    return Word.UNREADABLE if spoilt and failed else Word.NOT_BACK, f"no step came after the loss: {why}"


def happened(unbroken: Trace, run: Broken) -> bool:
    """Whether anything was left to do when it was struck: on a busy machine a loss may come after the last step."""
    if not run.struck or not run.ended.completed:
        return bool(run.struck)
    struck = run.struck[-1].attempt
    if any(one.attempt > struck for one in run.trace):
        return True
    last = max((one.step for one in unbroken), default=0)
    ended = {one.host for one in run.trace if one.attempt <= struck and one.step >= last}
    return not ended.issuperset(hosts(unbroken))


def _saved(run: Broken) -> int:
    """The newest step that a resumed attempt ought to know: that which the program says is saved, else the files."""
    struck = run.struck[0]
    told = max((one.saved for one in run.trace if one.attempt <= struck.attempt and one.at <= struck.at), default=-1)
    saved = max(told, struck.saved)
    if run.loss.damage is not Damage.NONE:  # the newest is spoilt: the one before it is the best there is
        older = [save.step for save in run.saves if save.done and save.step < saved and save.began < struck.at]
        return max(older, default=-1)
    return saved


def _back(run: Broken) -> float | None:
    """Seconds from the first loss to the first step that was new."""
    struck = run.struck[0]
    reached = max((one.step for one in run.trace if one.attempt <= struck.attempt), default=-1)
    new = [one.at for one in run.trace if one.attempt > struck.attempt and one.step > reached]
    return min(new) - struck.at if new else None


def _trained_on(run: Broken, struck: Struck, grace: float) -> bool:
    last = max((one.at for one in run.trace if one.attempt == struck.attempt), default=struck.at)
    return run.loss.what in (What.TERM, What.PREEMPT) and last - struck.at > grace / 2


def _other_params(reference: Mapping[int, Report], reports: Iterable[Report]) -> list[int]:
    """Steps whose parameters are not those of the unbroken run."""
    return [
        one.step
        for one in reports
        if one.params and (same := reference.get(one.step)) and same.params and same.params != one.params
    ]


def _compare(unbroken: Trace, run: Broken, resumed: Mapping[int, int], tolerance: float, saved: int) -> Evidence:
    struck = run.struck[-1]
    different: dict[int, tuple[int, float, float]] = {}
    shift, counter = None, None
    batches_known, batches_equal = False, True
    first_resume_equal = None
    for host in hosts(unbroken):
        reference = by_step(unbroken, host)
        after = {one.step: one for one in run.trace if one.host == host and one.attempt > struck.attempt}
        known = {step: one.batch for step, one in reference.items() if one.batch}
        given = {step: one.batch for step, one in after.items() if one.batch}
        if known and given:
            batches_known = True
            if any(known.get(step, batch) != batch for step, batch in given.items()):
                batches_equal = False
                found = offsets.by_digest(known, given)
                shift = shift or found
                at = min(step for step, batch in given.items() if known.get(step, batch) != batch)
                different[host] = (at, 0.0, 0.0)
        losses = {step: one.loss for step, one in reference.items() if one.loss is not None}
        resumed_losses = {step: one.loss for step, one in after.items() if one.loss is not None}
        apart_by = {step: apart(losses[step], loss) for step, loss in resumed_losses.items() if step in losses}
        wrong = sorted(step for step, by in apart_by.items() if by > tolerance)
        before = [one for one in run.trace if one.host == host and one.attempt <= run.struck[0].attempt]
        # Where they differ before anything is lost the program is not repeatable to the last bit.
        params = [] if _other_params(reference, before) else _other_params(reference, after.values())
        if wrong:
            different[host] = (wrong[0], apart_by[wrong[0]], max(apart_by.values()))
            counter = counter or offsets.equal_shift(losses, resumed_losses, tolerance)
            if not known or not given:
                from_start = min(resumed.values()) - min(losses)
                shift = shift or offsets.by_loss(losses, resumed_losses, (0, 1, -1, from_start))
        elif params and host not in different:
            different[host] = (min(params), 0.0, 0.0)
        if run.loss.again in (Again.SAME_STEP, Again.SAVED) and len(run.struck) > 1:
            between = [one for one in run.trace if one.host == host and one.attempt == run.struck[0].attempt + 1]
            pairs = [(one.loss, losses.get(one.step)) for one in between]
            equal = all(a is None or b is None or apart(a, b) <= tolerance for a, b in pairs)
            first_resume_equal = equal if first_resume_equal is None else first_resume_equal and equal
    at, by, most = min(different.values(), default=(-1, 0.0, 0.0))
    return Evidence(
        resumed,
        {host: found[0] for host, found in different.items()},
        at if different else None,
        by,
        most,
        shift,
        counter,
        batches_known,
        batches_known and batches_equal,
        saved,
        first_resume_equal,
    )
