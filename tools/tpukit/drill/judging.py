"""Judge the effect of a loss by comparing the broken run with the unbroken one. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from tpukit.core.quantities import counted
from tpukit.drill import comparing, leaving
from tpukit.drill.comparing import Evidence, Noise
from tpukit.drill.losses import DURING_SAVE, Again, Damage, What, When
from tpukit.drill.trace import Report, Trace, hosts
from tpukit.drill.verdicts import Broken, Said, Verdict, Word


def noise(unbroken: Trace, runs: Iterable[Broken], repeats: Iterable[Trace] = ()) -> Noise:
    """Measure how far runs differ from the unbroken one: `repeats` as a whole, broken runs up to their loss."""
    before = [
        tuple(one for one in run.trace if one.attempt == (run.struck[0].attempt if run.struck else 0)) for run in runs
    ]
    return comparing.noise(unbroken, [*repeats, *before])


@dataclass(frozen=True, slots=True)
class _Case:
    """Input of the rules below."""

    run: Broken
    first: int  # first step of the unbroken run
    last: int
    end: int  # the last step of the broken run
    reached: int  # the last step before the loss
    resumed_at: int
    steps_lost: int
    saved: int
    noise: Noise
    saving_seconds: float
    grace: float
    evidence: Evidence


def judge(
    unbroken: Trace, run: Broken, noise: Noise | None = None, saving_seconds: float = 0.0, grace: float = 30.0
) -> Verdict:
    """Judge one loss. `saving_seconds` is the length of a save, `grace` the seconds between SIGTERM and the kill."""
    noise = noise or comparing.noise(unbroken, ())
    loss = run.loss
    if text := restored_from_elsewhere(unbroken, run):
        return Verdict(loss, Word.CANNOT_TELL, text, evidence=Evidence({}, outside=True))
    if not run.struck:
        return Verdict(loss, Word.NOT_STRUCK, "the run was over before it could be struck")
    struck = run.struck[-1]
    later = [report for report in run.trace if report.attempt > struck.attempt]
    lost_at = max(one.step for one in run.struck)
    saved = _saved(run)
    if not later and loss.what is What.DISK_FULL and run.ended.completed:
        return Verdict(loss, Word.EXACT, "it went on with a disk that was full", lost_at, None, 0)
    if not later and (found := leaving.ignored(run, struck)):
        return Verdict(loss, *found, lost_at, evidence=Evidence({}, saved=saved, ignored_term=True))
    if not happened(unbroken, run):
        return Verdict(loss, Word.NOT_STRUCK, "it was struck after its last step, and had nothing left to do", lost_at)
    if not later:
        word, text = _not_back(run)
        return Verdict(loss, word, text, lost_at, evidence=Evidence({}, saved=saved, exited_0=run.ended.completed))
    trained = [one for one in later if not one.is_restore] or later
    resumed = {host: min(one.step for one in trained if one.host == host) for host in hosts(trained)}
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
            comparing.compare(unbroken, later, resumed, noise, _between(run)),
            saved=saved,
            trained_on=leaving.trained_on(run, struck, grace),
            unfinished=leaving.left_unfinished(run, struck),
            ignored_term=leaving.saved_and_trained_on(run, struck, grace),
            outside=run.outside is not None and saved < 0 and resumed_at > first,
        ),
    )
    rules = (
        _incomplete,
        _saved_elsewhere,
        _starts_over,
        _apart_hosts,
        _older_save,
        _data,
        _not_comparable,
        _values,
        _too_long,
        _unsaved_on_term,
    )
    word, text = next((found for rule in rules if (found := rule(case))), None) or _exact(case)
    return Verdict(loss, word, text, lost_at, resumed_at, case.steps_lost, _back(run), case.evidence)


def _incomplete(case: _Case) -> Said | None:
    run, end, counted = case.run, case.end, abs(case.evidence.counter or 0)
    if run.given_up or not run.ended.completed:
        why = run.given_up or run.ended.message
        return Word.NOT_BACK, f"it resumed at step {case.resumed_at} and ended at {end}: {why}"
    if end < case.last - counted:
        return Word.NOT_BACK, f"it ended well at step {end}; the unbroken run ended at {case.last}"
    return None


def _too_long(case: _Case) -> Said | None:
    if case.end <= case.last or case.evidence.counter is not None:
        return None
    return Word.DIVERGES, f"it trained to step {case.end}; the unbroken run ended at {case.last}"


def restored_from_elsewhere(unbroken: Trace, run: Broken) -> str:
    """Return the evidence that a fresh run began at another step than the unbroken one; empty if it did not."""
    first = min((one.step for one in unbroken if not one.is_restore), default=0)
    began = min((one.step for one in run.trace if one.attempt == 0 and not one.is_restore), default=None)
    if began is None and run.ended.completed and not run.struck and unbroken:
        return f"a fresh run had nothing left to do: {_elsewhere(run)}"
    return f"a fresh run began at step {began}: {_elsewhere(run)}" if began is not None and began > first else ""


def _elsewhere(run: Broken) -> str:
    where = f"; files are written to {_few(run.outside)}" if run.outside else ""
    return f"it restored what another run saved; save below $TPUKIT_WORKDIR{where}"


def _saved_elsewhere(case: _Case) -> Said | None:
    if not case.evidence.outside:
        return None
    where = f", but files were written to {_few(case.run.outside)}" if case.run.outside else ""
    text = f"it went on from step {case.resumed_at}, and no save was seen in its workdir{where}"
    return Word.CANNOT_TELL, f"{text}: save below $TPUKIT_WORKDIR, which each run has for itself"


def _starts_over(case: _Case) -> Said | None:
    if case.resumed_at > case.first:
        return None
    if case.saved > case.first:
        return Word.STARTS_OVER, f"it began again at step {case.resumed_at}, although step {case.saved} was saved"
    nothing = not case.run.saves and case.saved < 0
    if nothing and case.run.loss.when is When.AT_STEP and case.reached > case.first:
        return Word.STARTS_OVER, f"it began again at step {case.resumed_at}: nothing was saved"
    return None


def _apart_hosts(case: _Case) -> Said | None:
    resumed, silent = case.evidence.resumed, case.evidence.silent
    if not case.evidence.are_apart:
        return None
    each = [f"host {host} at {step}" for host, step in sorted(resumed.items())]
    each += [f"host {host} made no further step" for host in silent]
    return Word.DIVERGES, f"its hosts went on from different steps: {', '.join(each)}"


def _older_save(case: _Case) -> Said | None:
    """Judge a resume from an older save than the newest.

    Where no name has the step of a save, it is inferred from when the files came, and is one step off at most.
    """
    sure = case.run.struck[0].named or any(one.saved >= 0 for one in case.run.trace)
    if case.saved < 0 or case.resumed_at >= case.saved - (0 if sure else 1):
        return None
    return Word.LOSES_MORE, f"step {case.saved} was saved, and it went on from step {case.resumed_at}"


def _data(case: _Case) -> Said | None:
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


def _not_comparable(case: _Case) -> Said | None:
    evidence, noise = case.evidence, case.noise
    if not evidence.values:
        what = (
            f"{counted(evidence.steps, 'step was', 'steps were')} compared, and no value"
            if evidence.steps
            else "no step of both runs is equal"
        )
        return Word.CANNOT_TELL, f"{what}: report a loss, or batch=host.digest(...), with every step"
    if not noise.hides_mistakes or evidence.params_equal or evidence.counter is not None:
        return None
    return Word.CANNOT_TELL, (
        f"unbroken runs differ by up to {noise.most:.2g} of the loss, and steps in a row by {noise.neighbours:.2g}: "
        "set every seed, make the program deterministic, or report batch=host.digest(...) and params="
    )


def _values(case: _Case) -> Said | None:
    evidence = case.evidence
    if evidence.counter is not None:
        return (
            Word.DIVERGES,
            f"its losses are those of the unbroken run, {counted(abs(evidence.counter), 'step')} apart",
        )
    if evidence.first_different is None:
        return None
    if evidence.missing == evidence.first_different:
        return Word.DIVERGES, f"step {evidence.missing} had a loss, and has none after the resume"
    if math.isinf(evidence.difference):
        return Word.DIVERGES, f"its loss is not a finite number from step {evidence.first_different} on"
    size = f", by {evidence.difference:.2g} of the loss there and {evidence.largest:.2g} at most"
    what = size if evidence.largest else " in its batches or parameters; the losses are equal"
    if evidence.not_restored:
        what += f"; not restored: {_few(evidence.not_restored)}"
    if not evidence.batches_known and not evidence.not_restored:
        what += "; report batch=host.digest(...) to see whether its batches are right"
    return Word.DIVERGES, f"it differs from step {evidence.first_different} on{what} ({_compared(evidence)})"


def _compared(evidence: Evidence) -> str:
    return f"{counted(evidence.values, 'value')} of {counted(evidence.steps, 'step')} compared"


def _few(names: Sequence[str]) -> str:
    more = f" and {len(names) - 5} more" if len(names) > 5 else ""
    return ", ".join(names[:5]) + more


def _unsaved_on_term(case: _Case) -> Said | None:
    return leaving.unsaved(case.run, case.run.struck[-1], case.steps_lost, case.saving_seconds, case.grace)


def _exact(case: _Case) -> Said:
    most = case.noise.most
    same = f"as unbroken, within {case.noise.tolerance:.1g} ({most:.1g} is noise)" if most else "the same as unbroken"
    return Word.EXACT, f"every step from {case.resumed_at} to {case.end} is {same} ({_compared(case.evidence)})"


def _not_back(run: Broken) -> Said:
    loss = run.loss
    why = run.given_up or run.ended.message or "no further step was reported"
    in_save = loss.when in DURING_SAVE or run.struck[-1].saving >= 0
    spoilt = in_save or loss.what is What.DISK_FULL or loss.damage is not Damage.NONE
    # An attempt that the drill stopped for its silence did not fail on the checkpoint: it may have been slow to start.
    failed = not run.given_up and any(run.ended.failures[run.struck[-1].attempt + 1 :])
    return Word.UNREADABLE if spoilt and failed else Word.NOT_BACK, f"no step came after the loss: {why}"


def happened(unbroken: Trace, run: Broken) -> bool:
    """Return whether work was left when the loss struck: on a busy machine a loss may come after the last step."""
    if not run.struck or not run.ended.completed:
        return bool(run.struck)
    struck = run.struck[-1].attempt
    if any(one.attempt > struck for one in run.trace):
        return True
    last = max((one.step for one in unbroken), default=0)
    ended = {one.host for one in run.trace if one.attempt <= struck and one.step >= last}
    return not ended.issuperset(hosts(unbroken))


def _saved(run: Broken) -> int:
    """Return the newest step that a resumed attempt should know, from the program's reports or else from the files."""
    struck = run.struck[0]
    told = max((one.saved for one in run.trace if one.attempt <= struck.attempt and one.at <= struck.at), default=-1)
    saved = max(told, struck.saved)
    if run.loss.damage is not Damage.NONE:  # the newest is damaged, so the one before it is the best
        older = [save.step for save in run.saves if save.done and save.step < saved and save.began < struck.at]
        return max(older, default=-1)
    return saved


def _back(run: Broken) -> float | None:
    """Return the seconds from the first loss to the first new step."""
    struck = run.struck[0]
    reached = max((one.step for one in run.trace if one.attempt <= struck.attempt), default=-1)
    new = [one.at for one in run.trace if one.attempt > struck.attempt and one.step > reached]
    return min(new) - struck.at if new else None


def _between(run: Broken) -> list[Report]:
    """Return the reports of the attempt between two losses."""
    if run.loss.again not in (Again.SAME_STEP, Again.SAVED) or len(run.struck) < 2:
        return []
    return [one for one in run.trace if one.attempt == run.struck[0].attempt + 1]
