"""A whole drill: the unbroken run, the plan, one run for each loss, and the conclusions."""

from __future__ import annotations

import secrets
import shlex
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from statistics import median

from tpukit.core.clock import Clock
from tpukit.core.errors import Invalid
from tpukit.drill import advice, costs, findings, holding, judging, limits, planning, pricing, reaper
from tpukit.drill import saves as saving
from tpukit.drill.advice import Cause
from tpukit.drill.comparing import Noise
from tpukit.drill.costs import Costs
from tpukit.drill.findings import Finding
from tpukit.drill.limits import Limits
from tpukit.drill.losses import Damage, Loss
from tpukit.drill.planning import Unbroken
from tpukit.drill.running import Run, Runs
from tpukit.drill.sites import Site
from tpukit.drill.trace import Trace
from tpukit.drill.verdicts import Broken, Ended, Verdict, Word, worst
from tpukit.jobs import snapshots as stage
from tpukit.jobs.plan import Plan
from tpukit.jobs.reasons import MEANINGS, Budget, State
from tpukit.kernel.store.sqlite import SqliteStore

HANGS = 2
"""Number of hung runs after which the drill skips the rest: each takes a minute or more."""
REPEATS = 2
"""Number of unbroken runs added when values differ, to tell noise from the effect of a loss."""
TRIES = 3
"""Attempts at a loss whose moment was missed: a step may be shorter than the time to observe it."""


@dataclass(frozen=True, slots=True)
class Request:
    plan: Plan
    seed: int = 0
    only: tuple[str, ...] = ()
    budget: float = 0.0  # seconds; 0: unlimited
    losses_per_day: float = 1.0
    zone: str = ""
    retain: bool = False  # keep the logs and checkpoints of all runs


@dataclass(frozen=True, slots=True)
class Result:
    """Result of one loss."""

    verdict: Verdict
    causes: tuple[Cause, ...]
    run: Run


@dataclass(frozen=True, slots=True)
class Drill:
    """Results of a drill."""

    job: str
    seed: int
    unbroken: Run
    planned: Unbroken
    results: tuple[Result, ...]
    left_out: tuple[tuple[str, str], ...]
    noise: Noise
    findings: tuple[Finding, ...]  # about the unbroken run
    costs: Costs
    seconds: float
    command: str = ""
    at: float = 0.0
    stopped: BaseException | None = None  # error that stopped it before all losses were tried

    @property
    def word(self) -> Word | None:
        """The worst verdict; None if nothing was tried."""
        return worst([*(result.verdict.word for result in self.results), *(one.word for one in self.findings)])

    @property
    def causes(self) -> tuple[Cause, ...]:
        of_losses = [cause for result in self.results for cause in result.causes]
        return tuple(dict.fromkeys([*of_losses, *(one.cause for one in self.findings)]))


@dataclass(frozen=True, slots=True)
class Progress:
    """Progress report, sent before and after each run."""

    number: int  # 0: an unbroken run
    count: int  # number of losses; 0: not known yet
    loss: Loss | None = None
    result: Result | None = None


Say = Callable[[Progress], None]


@contextmanager
def folder(drills: Path, chosen: Path | None = None) -> Iterator[Path]:
    """Yield a separate folder for a drill.

    Delete it afterwards unless it was `chosen`, and delete the folders of drills that were killed.
    """
    if chosen is None:
        drills.mkdir(parents=True, exist_ok=True, mode=0o700)
        for old in drills.iterdir():
            if not reaper.is_used(old):
                shutil.rmtree(old, ignore_errors=True)
    path = chosen or drills / secrets.token_hex(4)
    if (path / "store.db").exists():
        raise Invalid(f"{path} holds another drill", hint="name another folder, or remove it")
    # Each host carries this path as a mark, and marks have no relative paths.
    path = path.absolute()
    watch = reaper.Guard(path)
    try:
        yield path
    finally:
        watch.close()
        if chosen is None:
            shutil.rmtree(path, ignore_errors=True)


def drill(
    request: Request,
    site: Site,
    path: Path,
    clock: Clock,
    say: Say = lambda progress: None,
    tried: Callable[[Drill], None] = lambda drill: None,
) -> Drill:
    """Drill a job in a folder that nothing else uses.

    What finished before an interrupt or a full disk counts. `tried` gets the results so far after each loss.
    """
    began = clock.monotonic()
    plan = replace(site.prepare(request.plan), place=site.place.name)
    planning.check_only(request.only, plan.spec.slices, plan.slice.hosts)
    if plan.spec.code:
        plan = replace(plan, snapshot=stage.snapshot(Path(plan.spec.code), path / "code", (path,)))
    store = SqliteStore(path / "store.db")
    stopped: BaseException | None = None
    try:
        runs = Runs(store, site, clock, retain=request.retain)
        say(Progress(0, 0))
        unbroken = runs.run(plan, "unbroken", None, Limits())
        _require_completed(unbroken)
        unbroken, bounds, planned = _learn(plan, unbroken, limits_logs=site.limits_logs)
        work = _Work(runs, unbroken, plan, bounds)
        chosen = planning.plan(planned, request.seed, request.only, request.budget, site.impossible)
        left_out = list(chosen.left_out)

        def so_far() -> Drill:
            return _drill(request, plan, work, planned, left_out, began, clock, stopped)

        for number, loss in enumerate(chosen.losses, 1):
            if stopped or (why := work.over(request.budget, clock.monotonic() - began, planned.seconds)):
                left_out.append((loss.name, _sentence(stopped) if stopped else why))
                continue
            try:
                work.strike(Progress(number, len(chosen.losses), loss), say)
                tried(so_far())
            except (KeyboardInterrupt, OSError) as error:
                stopped = error
                left_out.append((loss.name, _sentence(error)))
    finally:
        store.close()
        site.close()
    return so_far()


def _drill(
    request: Request,
    plan: Plan,
    work: _Work,
    planned: Unbroken,
    left_out: Sequence[tuple[str, str]],
    began: float,
    clock: Clock,
    stopped: BaseException | None,
) -> Drill:
    results = work.results()
    return Drill(
        plan.spec.name,
        request.seed,
        work.unbroken,
        planned,
        results,
        tuple(left_out),
        work.noise,
        findings.of_unbroken(work.unbroken.trace, work.unbroken.saves),
        _costs(request, work.unbroken, results),
        clock.monotonic() - began,
        command=shlex.join(plan.spec.command),
        at=clock.now(),
        stopped=stopped,
    )


def _sentence(error: BaseException) -> str:
    return "interrupted" if isinstance(error, KeyboardInterrupt) else str(error)


class _Work:
    """Broken runs of a drill so far."""

    def __init__(self, runs: Runs, unbroken: Run, plan: Plan, limits: Limits) -> None:
        self._runs, self.unbroken, self._plan, self._limits = runs, unbroken, plan, limits
        self._pairs: list[tuple[Broken, Run]] = []
        self._repeats: list[Trace] = []

    def over(self, budget: float, spent: float, unbroken_seconds: float) -> str:
        """Return why no further loss is tried; empty if one is."""
        if any(one.verdict.evidence.outside for one in self.results()):
            return "checkpoints are outside the workdir, and each run would spoil the next"
        hung = [run.name for _, run in self._pairs if run.given_up]
        if len(hung) >= HANGS:
            return f"the runs {' and '.join(hung)} hung"
        typical = median([run.seconds for _, run in self._pairs] or [planning.COST * unbroken_seconds])
        return "the budget is used up" if budget and self._pairs and spent + typical > budget else ""

    def strike(self, progress: Progress, say: Say) -> None:
        assert progress.loss is not None
        say(progress)
        loss, run = _struck(self._runs, self.unbroken, self._plan, progress.loss, self._limits)
        self._pairs.append((_broken(loss, run, self.unbroken), run))
        newest = self.results()[-1].verdict.evidence
        differs = self.noise.most or self.noise.params_differ or newest.first_different is not None
        if differs and not self._repeats:
            say(Progress(0, progress.count))
            for number in range(REPEATS):
                again = self._runs.run(self._plan, f"unbroken-{number + 2}", None, Limits())
                self._repeats.append(again.trace)
        say(replace(progress, result=self.results()[-1]))

    @property
    def noise(self) -> Noise:
        return judging.noise(self.unbroken.trace, [broken for broken, _ in self._pairs], self._repeats)

    def results(self) -> tuple[Result, ...]:
        """Judge each run by the noise of all runs together."""
        noise, grace, saving = self.noise, self._limits.grace, self._limits.saving_seconds
        verdicts = [judging.judge(self.unbroken.trace, broken, noise, saving, grace) for broken, _ in self._pairs]
        causes = advice.of_all(verdicts)
        runs = (run for _, run in self._pairs)
        return tuple(Result(*one) for one in zip(verdicts, causes, runs, strict=True))


def _require_completed(run: Run) -> None:
    if run.state is not State.COMPLETED:
        why = run.given_up or run.message or str(run.state)
        raise Invalid(f"the unbroken run did not complete: {why}", hint="a job that runs to its end can be drilled")


def _learn(plan: Plan, run: Run, *, limits_logs: bool) -> tuple[Run, Limits, Unbroken]:
    steps = sorted({report.step for report in run.trace})
    if not steps:
        hint = "print `step N loss X`, report with tpukit.host, or describe the program's lines with `progress:`"
        raise Invalid("the program reports no step: there is nothing to compare", hint=hint)
    ignore = saving.not_saves(run.moments, len(steps))
    consists = saving.learnt(run.moments, ignore)
    run = replace(run, saves=saving.seen(run.moments, ignore, consists), ignore=ignore, consists=consists)
    done = [save for save in run.saves if save.done]
    last = steps[-1] if steps else 0
    saved = tuple(sorted({save.step for save in done if save.step >= 0} | _reported(run)))
    start = min((report.at for report in run.trace), default=run.began) - run.began
    bounds = replace(
        limits.measure(run.trace, run.saves, start, float(plan.spec.max.grace)),
        bytes_most=_largest(run) // 2,
        ignore=ignore,
        consists=consists,
        first_save=min(saved, default=-1),
        last=last,
        unsaved=limits.unsaved(steps, saved),
    )
    planned = Unbroken(
        plan.spec.slices,
        plan.slice.hosts,
        tuple(steps),
        tuple(step for step in saved if step < last),
        run.seconds,
        _largest(run),
        run.largest_log if limits_logs else 0,
    )
    return run, bounds, planned


def _reported(run: Run) -> set[int]:
    return {report.saved for report in run.trace if report.saved >= 0}


def _largest(run: Run) -> int:
    """Return the size of the largest file of a checkpoint, in bytes."""
    paths = {path for save in run.saves for path in save.paths}
    return max((file.size for moment in run.moments for path, file in moment.files.items() if path in paths), default=0)


def _struck(runs: Runs, unbroken: Run, plan: Plan, loss: Loss, limits: Limits) -> tuple[Loss, Run]:
    """Run a loss and return it as tried, with its run. Retry at an earlier step if the strike came too late.

    A damaged checkpoint is never the first one, because there would be no older one to fall back to.
    """
    for number in range(TRIES):
        name = loss.name if number == 0 else f"{loss.name}-{number + 1}"
        early = loss if loss.damage is not Damage.NONE else replace(loss, step=loss.step * (TRIES - number) // TRIES)
        run = runs.run(plan, name, early, limits)
        broken = _broken(early, run, unbroken)
        if judging.happened(unbroken.trace, broken) or judging.restored_from_elsewhere(unbroken.trace, broken):
            break
    return early, run


def _broken(loss: Loss, run: Run, unbroken: Run) -> Broken:
    # A program that saves by appending to one file writes to its workdir too, but shows no save.
    outside = unbroken.outside if not unbroken.saves and (unbroken.outside or not unbroken.wrote) else None
    failures = tuple(
        attempt.reason is not None and MEANINGS[attempt.reason].budget is Budget.USER for attempt in run.attempts
    )
    ended = Ended(run.state is State.COMPLETED, run.message, failures)
    return Broken(loss, run.trace, ended, run.struck, run.saves, run.given_up, run.damaged, outside)


def _costs(request: Request, run: Run, results: Sequence[Result]) -> Costs:
    spec = request.plan.spec
    usd, note = pricing.per_hour(request.plan.slice, spec.slices, spec.capacity, request.zone)
    done = [save for save in run.saves if save.done and save.step >= 0]
    first = min((report.host for report in run.trace), default=0)
    times: dict[int, float] = {}
    for report in sorted(run.trace, key=lambda report: report.at):
        if report.host == first:
            times.setdefault(report.step, report.at)
    between = [later.began - earlier.began for earlier, later in pairwise(done)]
    return costs.estimate(
        hold=holding.measure(times, [(save.began, save.changed) for save in done], run.pause),
        save_seconds=[save.seconds for save in done],
        save_bytes=int(median([save.size for save in done])) if done else None,
        save_every=median(between) if between else None,
        back=[one.verdict.back_seconds for one in results if one.verdict.back_seconds is not None],
        losses_per_day=request.losses_per_day,
        usd_per_hour=usd,
        price_note=note,
    )
