"""Compare the values that a resumed run reported with those of the unbroken run. Pure.

A value is a loss, or the digest of a batch or of parameters. A missing value counts as different. Runs of a program
that is not repeatable differ before any loss: that difference, the noise, is tolerated afterwards.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from statistics import median

from tpukit.drill import offsets
from tpukit.drill.offsets import Shift, apart
from tpukit.drill.trace import Report, Trace, by_step, hosts

NOISE_FACTOR = 4.0
"""Multiple of the noise from which a difference counts."""
FEW = 3
"""Number of losses whose median stands for the loss at a time."""
SMALL_SHARE = 0.1
"""Share of a wrong batch's effect on a loss. Optimizer state that is not restored has a smaller effect than a batch."""


@dataclass(frozen=True, slots=True)
class Noise:
    """Differences between runs of one program before any loss."""

    most: float = 0.0  # the largest difference of one step's loss, as a share
    neighbours: float = math.inf  # difference of consecutive losses: the effect of a wrong batch
    params_differ: bool = False  # digests of parameters differ between runs
    batches_differ: bool = False

    @property
    def tolerance(self) -> float:
        return NOISE_FACTOR * self.most

    @property
    def hides_mistakes(self) -> bool:
        """Return whether noise would hide the loss of wrong data or parameters."""
        return self.most > 0.0 and self.tolerance >= SMALL_SHARE * self.neighbours


def noise(unbroken: Trace, others: Iterable[Trace]) -> Noise:
    """Measure how far `others` (whole runs, or the part before a loss) differ from the unbroken run."""
    most, params, batches = 0.0, False, False
    for trace in others:
        for host in hosts(unbroken):
            reference, again = by_step(unbroken, host), by_step(trace, host)
            for step in reference.keys() & again.keys():
                one, other = reference[step], again[step]
                if one.loss is not None and other.loss is not None:
                    most = max(most, apart(one.loss, other.loss))
                params = params or bool(one.params and other.params and one.params != other.params)
                batches = batches or bool(one.batch and other.batch and one.batch != other.batch)
    return Noise(most, _neighbours(unbroken), params, batches)


def _neighbours(unbroken: Trace) -> float:
    apart_by = [
        apart(one, other)
        for host in hosts(unbroken)[:1]
        for one, other in pairwise(report.loss for _, report in sorted(by_step(unbroken, host).items()))
        if one is not None and other is not None
    ]
    return median(apart_by) if apart_by else math.inf


@dataclass(frozen=True, slots=True)
class Evidence:
    """Evidence for a verdict and its causes."""

    resumed: Mapping[int, int]  # host -> first step after the last loss
    different: Mapping[int, int] = field(default_factory=dict)  # host -> first step that differs from the unbroken run
    first_different: int | None = None  # of all hosts
    difference: float = 0.0  # at that step, as a share
    largest: float = 0.0
    steps: int = 0  # compared
    values: int = 0  # compared: losses that are numbers, and digests
    missing: int | None = None  # first step whose loss is missing after the resume
    shift: Shift | None = None
    counter: int | None = None  # offset of the step numbers; the values are those of the unbroken run
    batches_known: bool = False
    batches_equal: bool = False
    params_known: bool = False
    params_equal: bool = False
    not_restored: tuple[str, ...] = ()  # parameters that differ at the restored step
    restored: int = 0  # number of parameters that are equal there
    excess: tuple[float, ...] = ()  # of each loss after the resume, from the first on
    learnt: float = math.nan  # by how much the unbroken run's loss fell from its first steps to the resume
    saved: int = -1
    first_resume_equal: bool | None = None  # of a run with two losses
    trained_on: bool = False  # made steps through most of the grace after SIGTERM
    exited_0: bool = False  # the program exited with 0 and made no further step
    ignored_term: bool = False
    unfinished: bool = False  # a save that began after SIGTERM was not finished when the program ended
    silent: tuple[int, ...] = ()  # hosts that reported in the unbroken run but not after the last loss
    outside: bool = False  # the checkpoints are outside the drill's workdirs
    neighbours: float = math.inf  # relative difference between the losses of consecutive steps

    @property
    def are_apart(self) -> bool:
        """Return whether hosts resumed from different steps, or some made no further step."""
        return len(set(self.resumed.values())) > 1 or bool(self.resumed and self.silent)


@dataclass(frozen=True, slots=True)
class _Host:
    """One host's values, unbroken and after the last loss."""

    reference: Mapping[int, Report]
    after: Mapping[int, Report]

    @property
    def common(self) -> list[int]:
        return sorted(self.reference.keys() & self.after.keys())

    def losses(self, reports: Mapping[int, Report]) -> dict[int, float]:
        return {step: one.loss for step, one in reports.items() if one.loss is not None}

    def batches(self, reports: Mapping[int, Report]) -> dict[int, str]:
        return {step: one.batch for step, one in reports.items() if one.batch}

    @property
    def apart_by(self) -> dict[int, float]:
        """Return how far the losses differ, by step. A missing loss is infinitely far."""
        known = self.losses(self.reference)
        return {
            step: math.inf if (loss := self.after[step].loss) is None else apart(known[step], loss)
            for step in self.common
            if step in known and not self.after[step].is_restore
        }

    @property
    def other_params(self) -> list[int]:
        pairs = [(step, self.reference[step].params, self.after[step].params) for step in self.common]
        return [step for step, one, other in pairs if one and other and one != other]

    @property
    def values(self) -> int:
        """Count the comparable values of both runs. NaN equal to NaN does not count."""
        count = 0
        for step in self.common:
            one, other = self.reference[step], self.after[step]
            count += sum(1 for a, b in ((one.batch, other.batch), (one.params, other.params)) if a and b)
            count += one.loss is not None and math.isfinite(one.loss)
        return count


def compare(
    unbroken: Trace, after: Sequence[Report], resumed: Mapping[int, int], noise: Noise, between: Sequence[Report] = ()
) -> Evidence:
    """Compare the reports `after` the last loss. `between` has the reports of the attempt between two losses."""
    tolerance = noise.tolerance
    found: dict[int, tuple[int, float, float]] = {}
    shift, counter, missing = None, None, None
    batches_known, batches_equal, params_known, params_equal = False, True, False, True
    steps: set[int] = set()
    values = 0
    excess: tuple[float, ...] = ()
    learnt = math.nan
    first_equal: bool | None = None
    for number in hosts(unbroken):
        host = _Host(by_step(unbroken, number), {one.step: one for one in after if one.host == number})
        steps |= set(host.common)
        values += host.values
        known, given = host.batches(host.reference), host.batches(host.after)
        if known.keys() & given.keys() and not noise.batches_differ:
            batches_known = True
            if other := [step for step, batch in given.items() if known.get(step, batch) != batch]:
                batches_equal = False
                shift = shift or offsets.by_digest(known, given)
                found[number] = (min(other), 0.0, 0.0)
        apart_by = host.apart_by
        wrong = sorted(step for step, by in apart_by.items() if by > tolerance)
        lost = [step for step in apart_by if host.after[step].loss is None]
        missing = min([*lost, *([] if missing is None else [missing])], default=None)
        if any(host.reference[step].params and host.after[step].params for step in host.common):
            params_known = True
        params = [] if noise.params_differ else host.other_params
        params_equal = params_equal and not params
        losses, resumed_losses = host.losses(host.reference), host.losses(host.after)
        if wrong:
            found[number] = (wrong[0], apart_by[wrong[0]], max(apart_by.values()))
            counter = counter or offsets.equal_shift(losses, resumed_losses, tolerance)
            if not excess:
                excess = tuple(resumed_losses[step] - losses[step] for step in sorted(apart_by) if step not in lost)
                learnt = _learnt(losses, min(apart_by))
            if (not known or not given) and not noise.hides_mistakes:
                shift = shift or offsets.by_loss(losses, resumed_losses)
        elif params and number not in found:
            found[number] = (min(params), 0.0, 0.0)
        if between:
            pairs = [(one.loss, losses.get(one.step)) for one in between if one.host == number]
            equal = all(a is None or b is None or apart(a, b) <= tolerance for a, b in pairs)
            first_equal = equal if first_equal is None else first_equal and equal
    at, by, most = min(found.values(), default=(-1, 0.0, 0.0))
    names = _restored(unbroken, after)
    return Evidence(
        resumed,
        {host: one[0] for host, one in found.items()},
        at if found else None,
        by,
        most,
        len(steps),
        values,
        missing,
        shift,
        counter,
        batches_known,
        batches_known and batches_equal,
        params_known and not noise.params_differ,
        params_known and params_equal and not noise.params_differ,
        tuple(name for name, same in names if not same),
        sum(1 for _, same in names if same),
        excess,
        learnt,
        first_resume_equal=first_equal,
        silent=tuple(host for host in hosts(unbroken) if host not in resumed),
        neighbours=noise.neighbours,
    )


def _learnt(losses: Mapping[int, float], resumed: int) -> float:
    """Return by how much a few losses before the resume are lower than the first ones."""
    before = [losses[step] for step in sorted(losses) if step < resumed]
    return median(before[:FEW]) - median(before[-FEW:]) if before else math.nan


def _restored(unbroken: Trace, after: Sequence[Report]) -> list[tuple[str, bool]]:
    """Return for each parameter name whether it was restored, from the first step where both runs report names."""
    for number in hosts(unbroken):
        reference = by_step(unbroken, number)
        named = {one.step: dict(one.named) for one in after if one.host == number and one.named}
        first = next((step for step in sorted(named) if step in reference and reference[step].named), None)
        if first is not None:
            known = dict(reference[first].named)
            return [(name, digest == named[first].get(name)) for name, digest in sorted(known.items())]
    return []
